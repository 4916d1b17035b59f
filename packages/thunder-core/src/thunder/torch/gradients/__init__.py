"""The gradient rules of the torch language, by subject: tables of formulas (see ``thunder.core.gradient_rules``)."""

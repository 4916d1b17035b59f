"""Batching rules of primitives, a module for each subject: values of ``Operator.batch``."""

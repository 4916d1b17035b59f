"""The objects that a program reaches: their provenance, kinds, shadow copies, classes and namespaces."""

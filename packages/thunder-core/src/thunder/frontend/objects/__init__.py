"""The objects that a program reaches: provenance, kinds, shadow copies, namespaces."""

"""Operators apart from torch's names: rows, primitives, promotion, layouts, gradients."""

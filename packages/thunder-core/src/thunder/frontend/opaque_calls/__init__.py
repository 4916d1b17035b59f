"""Callables that run as they are, at their place, in each call of a compiled program."""

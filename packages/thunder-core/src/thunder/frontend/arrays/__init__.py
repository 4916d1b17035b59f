"""NumPy's arrays in the traced program."""

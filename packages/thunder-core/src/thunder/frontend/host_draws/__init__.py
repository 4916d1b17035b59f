"""Random numbers that a program draws by Python's ``random`` and by NumPy."""

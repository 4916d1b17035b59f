"""Functions that Python has in C, written in Python: the interpreter runs these in their place.

A function in C calls methods and functions of the program unseen. Each function here has the results, the
errors, the order of comparisons and the laziness of the one in C, after Python's documentation of it.
"""

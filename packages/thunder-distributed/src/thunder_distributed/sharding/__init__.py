"""The layouts of values that are divided over processes, and one rule for each operator."""

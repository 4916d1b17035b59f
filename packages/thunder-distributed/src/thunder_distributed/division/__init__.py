"""The division of a program over processes: layouts of values, rules of operators, and their stage."""

"""From one call of a program to its trace, its guards and its epilogue."""

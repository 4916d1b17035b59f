"""The epilogue: code that repeats the writes of a program and builds its result."""

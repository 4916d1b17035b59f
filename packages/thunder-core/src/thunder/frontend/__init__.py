"""From a call to a trace: what the program read becomes guards, what it computed the trace, what it wrote the
epilogue.
"""

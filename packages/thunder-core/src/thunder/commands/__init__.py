"""The commands of `python -m thunder`, one module each.

A module's `add(commands)` adds the command's parser and sets its function `run(options) -> exit status`.
"""

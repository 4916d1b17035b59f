"""The commands of `python -m thunder`, a module each.

A module has `add(commands)`, which enters the command's parser, and sets its `run(options) -> exit status`.
"""

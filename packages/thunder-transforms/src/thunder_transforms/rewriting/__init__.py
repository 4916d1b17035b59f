"""Rewriting of programs by rules: patterns are matched by data flow and replaced."""

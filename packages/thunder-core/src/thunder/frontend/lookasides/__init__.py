"""Lookasides: functions that a rule carries out instead of the interpreter."""

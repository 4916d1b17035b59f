"""Passes: functions from trace to trace, each with one subject."""

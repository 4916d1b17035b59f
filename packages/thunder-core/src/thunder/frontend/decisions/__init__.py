"""Decisions on data: questions whose answers a trace is for, and checks."""

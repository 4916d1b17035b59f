"""Errors, options, dtypes, devices, pytrees and provenance, which every other folder uses."""

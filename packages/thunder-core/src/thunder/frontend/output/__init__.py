"""Printed output, warnings and log messages of traced programs."""

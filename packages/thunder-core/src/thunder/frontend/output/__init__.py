"""Printed output, warnings and log records of traced programs."""

"""Benchmarks of thunder."""

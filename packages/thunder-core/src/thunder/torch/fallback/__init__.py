"""Torch functions without a row: torch runs them as they are, where that is sound."""

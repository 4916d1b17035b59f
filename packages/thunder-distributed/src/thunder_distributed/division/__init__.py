"""Tensor parallelism: the stage that divides a program, its conversions, and the check of its draws."""

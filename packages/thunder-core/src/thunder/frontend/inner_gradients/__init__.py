"""Gradients that a program computes of its own values."""

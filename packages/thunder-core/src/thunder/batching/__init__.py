"""Batching: a program of one example becomes the program of all examples at once."""

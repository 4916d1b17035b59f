"""Frozen weights: what they determine is computed when they change, and kept between calls."""

"""Gradients as a transform of traces: joint trace, partition, and the function that torch differentiates."""

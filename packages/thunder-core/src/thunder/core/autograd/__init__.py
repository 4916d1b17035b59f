"""Gradients as a transform of traces: rules, joint trace, partition, and the function that torch differentiates."""

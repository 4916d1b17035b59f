"""Gradients as passes over traces: tape, joint trace, partition, nodes of torch's graph."""

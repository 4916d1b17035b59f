"""Linear layers with weights in 8 and 4 bits, by the kernels for CPUs that are in torch."""

"""The objects that `thunder.jit` returns for modules and functions, and their state."""

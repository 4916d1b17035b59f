"""The objects that `thunder.jit` returns for modules and functions, and the state that they keep."""

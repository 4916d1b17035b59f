"""The base classes of executors: what an executor implements, claims and refuses."""

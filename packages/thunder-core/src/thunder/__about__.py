"""The version of thunder-core, and of every first-party plugin: all are released in lock-step."""

__version__ = "0.1.0"

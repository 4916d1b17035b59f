"""Models that are measured: small ones with the parts of well-known architectures."""

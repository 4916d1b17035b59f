"""The steps of functionalisation: alias analysis, rewrite, write-back to inputs."""

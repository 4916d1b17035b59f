"""Functions that a program transforms: mapped over a batch, or differentiated forward."""

"""``torch.utils.checkpoint`` in traced programs."""

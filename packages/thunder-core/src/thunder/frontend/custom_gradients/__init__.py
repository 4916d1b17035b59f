"""Calls whose gradient the program defines: ``torch.autograd.Function`` and custom operators."""

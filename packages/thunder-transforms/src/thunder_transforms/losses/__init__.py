"""Losses of linear layers, whose logits are computed in chunks of rows."""

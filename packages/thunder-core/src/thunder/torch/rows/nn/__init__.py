"""Operator rows of ``torch.nn.functional``, one module for each subject."""

from thunder.torch.rows.nn import (  # noqa: F401  (each fills the table)
    activation,
    attention,
    conv,
    ctc,
    dropout,
    grid_sampling,
    linear,
    loss,
    margin_loss,
    multihead,
    norm,
    pool,
    recurrent,
    softmax,
)

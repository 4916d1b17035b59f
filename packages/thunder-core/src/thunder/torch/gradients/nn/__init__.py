"""Gradient rules of ``torch.nn.functional``, one module for each subject."""

from thunder.torch.gradients.nn import (  # noqa: F401  (each adds rules to rows)
    activation_kernels,
    activations,
    attention,
    conv,
    embedding,
    loss,
    norm,
    pool,
    resampling,
    softmax,
)

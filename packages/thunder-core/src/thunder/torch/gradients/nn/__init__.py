"""The gradient rules of ``torch.nn.functional``, a module for each subject."""

from thunder.torch.gradients.nn import (  # noqa: F401  (each gives rules to rows)
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

"""The gradient rules of the torch language by subject: tables of formulas.

How they are written is told in ``thunder.core.gradient_rules``.
"""

from thunder.torch.gradients import (  # noqa: F401  (each gives rules to rows)
    activation_kernels,
    activations,
    binary,
    casts,
    contractions,
    cutting,
    factorizations,
    fourier,
    indexing,
    matrices,
    nn_attention,
    nn_conv,
    nn_embedding,
    nn_loss,
    nn_norm,
    nn_pool,
    nn_resampling,
    nn_softmax,
    norms,
    ordering,
    products,
    random,
    rearranging,
    reductions,
    special,
    ternary,
    unary,
    views,
)

"""Gradient rules of the torch language: tables of formulas, one module for each subject.

``thunder.ops.gradient_rules`` defines how a rule is written.
"""

from thunder.torch.gradients import (  # noqa: F401  (each adds rules to rows)
    binary,
    bounds,
    casts,
    cat_split,
    contractions,
    factorizations,
    fourier,
    indexing,
    matrices,
    nn,
    norms,
    products,
    random,
    rearrangement,
    reductions,
    sort_scan,
    special,
    ternary,
    unary,
    views,
)

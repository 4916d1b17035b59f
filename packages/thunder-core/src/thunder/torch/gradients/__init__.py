"""The gradient rules of the torch language, by subject: tables of formulas (see ``thunder.core.gradient_rules``)."""

from thunder.torch.gradients import nn_norm  # noqa: F401
from thunder.torch.gradients import nn_softmax  # noqa: F401
from thunder.torch.gradients import binary  # noqa: F401
from thunder.torch.gradients import ternary  # noqa: F401
from thunder.torch.gradients import unary  # noqa: F401
from thunder.torch.gradients import activation_kernels  # noqa: F401

"""The gradient rules of the torch language, by subject: tables of formulas (see ``thunder.core.gradient_rules``)."""

from thunder.torch.gradients import nn_norm  # noqa: F401
from thunder.torch.gradients import nn_softmax  # noqa: F401
from thunder.torch.gradients import binary  # noqa: F401
from thunder.torch.gradients import ternary  # noqa: F401
from thunder.torch.gradients import unary  # noqa: F401
from thunder.torch.gradients import activation_kernels  # noqa: F401
from thunder.torch.gradients import activations  # noqa: F401
from thunder.torch.gradients import casts  # noqa: F401
from thunder.torch.gradients import special  # noqa: F401
from thunder.torch.gradients import views  # noqa: F401
from thunder.torch.gradients import cutting  # noqa: F401
from thunder.torch.gradients import indexing  # noqa: F401
from thunder.torch.gradients import rearranging  # noqa: F401
from thunder.torch.gradients import ordering  # noqa: F401
from thunder.torch.gradients import reductions  # noqa: F401
from thunder.torch.gradients import norms  # noqa: F401
from thunder.torch.gradients import products  # noqa: F401
from thunder.torch.gradients import contractions  # noqa: F401
from thunder.torch.gradients import matrices  # noqa: F401
from thunder.torch.gradients import factorizations  # noqa: F401
from thunder.torch.gradients import fourier  # noqa: F401
from thunder.torch.gradients import nn_conv  # noqa: F401
from thunder.torch.gradients import nn_embedding  # noqa: F401
from thunder.torch.gradients import random  # noqa: F401
from thunder.torch.gradients import nn_attention  # noqa: F401
from thunder.torch.gradients import nn_loss  # noqa: F401

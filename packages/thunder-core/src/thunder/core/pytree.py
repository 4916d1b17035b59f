"""Nested containers: the public path of `thunder.base.pytree`."""

import sys

from thunder.base import pytree as _module
from thunder.base.pytree import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

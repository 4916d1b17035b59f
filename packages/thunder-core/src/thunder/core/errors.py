"""Exceptions and warnings: the public path of `thunder.base.errors`."""

import sys

from thunder.base import errors as _module
from thunder.base.errors import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

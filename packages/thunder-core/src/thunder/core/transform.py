"""The base class `Transform`: the public path of `thunder.passes.transform`."""

import sys

from thunder.passes import transform as _module
from thunder.passes.transform import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

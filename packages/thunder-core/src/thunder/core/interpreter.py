"""The bytecode interpreter: the public path of `thunder.interpreter`."""

import sys

from thunder import interpreter as _module
from thunder.interpreter import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

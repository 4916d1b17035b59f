"""`ThunderModule`: the public path of `thunder.wrappers.thunder_module`."""

import sys

from thunder.wrappers import thunder_module as _module
from thunder.wrappers.thunder_module import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

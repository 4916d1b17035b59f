"""Tags of operators and traces: the public path of `thunder.base.tags`."""

import sys

from thunder.base import tags as _module
from thunder.base.tags import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

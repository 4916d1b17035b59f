"""Proxies: the public path of `thunder.ir.proxies`."""

import sys

from thunder.ir import proxies as _module
from thunder.ir.proxies import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

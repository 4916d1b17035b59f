"""Devices: the public path of `thunder.base.devices`."""

import sys

from thunder.base import devices as _module
from thunder.base.devices import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module

"""Devices: the public path of `thunder.base.devices`."""

from thunder.base import devices as _module
from thunder.base.devices import *  # noqa: F403  (for type checkers)
from thunder.base.public_names import publish

publish(__name__, _module)

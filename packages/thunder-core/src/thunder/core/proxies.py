"""Proxies: the public path of `thunder.ir.proxies`."""

from thunder.base.public_names import publish
from thunder.ir import proxies as _module
from thunder.ir.proxies import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

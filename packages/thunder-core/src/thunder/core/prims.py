"""The primitives: the public path of `thunder.ops.prims`."""

from thunder.base.public_names import publish
from thunder.ops import prims as _module
from thunder.ops.prims import *  # noqa: F403  (for type checkers)
from thunder.ops.prims import packing as packing
from thunder.ops.prims import prologues as prologues

publish(__name__, _module)

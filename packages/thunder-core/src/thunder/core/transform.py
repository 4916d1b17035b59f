"""The base class `Transform`: the public path of `thunder.passes.transform`."""

from thunder.base.public_names import publish
from thunder.passes import transform as _module
from thunder.passes.transform import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

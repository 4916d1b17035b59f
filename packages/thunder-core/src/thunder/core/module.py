"""`ThunderModule`: the public path of `thunder.wrappers.thunder_module`."""

from thunder.base.public_names import publish
from thunder.wrappers import thunder_module as _module
from thunder.wrappers.thunder_module import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

"""Nested containers: the public path of `thunder.base.pytree`."""

from thunder.base import pytree as _module
from thunder.base.public_names import publish
from thunder.base.pytree import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

"""Exceptions and warnings: the public path of `thunder.base.errors`."""

from thunder.base import errors as _module
from thunder.base.errors import *  # noqa: F403  (for type checkers)
from thunder.base.public_names import publish

publish(__name__, _module)

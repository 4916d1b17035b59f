"""Data types of tensors: the public path of `thunder.base.dtypes`."""

from thunder.base import dtypes as _module
from thunder.base.dtypes import *  # noqa: F403  (for type checkers)
from thunder.base.public_names import publish

publish(__name__, _module)

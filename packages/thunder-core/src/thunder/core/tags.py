"""Tags of operators and traces: the public path of `thunder.base.tags`."""

from thunder.base import tags as _module
from thunder.base.public_names import publish
from thunder.base.tags import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

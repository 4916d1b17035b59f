"""`check_trace`: the public path of `thunder.ir.verify`."""

from thunder.base.public_names import publish
from thunder.ir import verify as _module
from thunder.ir.verify import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

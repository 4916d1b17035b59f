"""The bytecode interpreter: the public path of `thunder.interpreter`."""

from thunder import interpreter as _module
from thunder.base.public_names import publish
from thunder.interpreter import *  # noqa: F403  (for type checkers)

publish(__name__, _module)

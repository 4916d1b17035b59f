"""The compiler below its entry points: the interpreter, the IR, operators, passes, the frontend."""

from thunder.core.lazy import submodules_of

__getattr__ = submodules_of(__name__)

"""The compiler below its entry points: the interpreter, the IR, operators, passes, the frontend."""

from functools import partial

from thunder.core.lazy import submodule

__getattr__ = partial(submodule, __name__)

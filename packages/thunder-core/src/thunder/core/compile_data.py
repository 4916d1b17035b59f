"""The compile that is running, for code of packages that receives no arguments, and what is kept of one."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.compiler.running_compile import running_compile
from thunder.compiler.stats import CompileData, CompileStats

__all__ = ["CompileData", "CompileStats", "running_compile"]

__getattr__ = partial(missing_name, __name__)

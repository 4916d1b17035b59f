"""`examine`: which torch functions of a program thunder supports."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from traceback import walk_stack
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

from thunder.base.errors import Location, ThunderError
from thunder.base.package_files import is_package_file
from thunder.compiler.inspection import compile_data
from thunder.compiler.jit import jit
from thunder.compiler.plan import plan
from thunder.frontend.source_locations import is_torch_file
from thunder.ops.torch_errors import described_arguments
from thunder.torch.function_names import name_of

__all__ = ["examine"]


#: functions whose result is a decision on data, for which a plan has no data
_DECIDED = frozenset(
    (
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__"),
        *("is_nonzero", "tolist", "equal", "allclose"),
    )
)


@dataclass
class _Operation:
    """A torch function that the program calls, and the error of its first call that cannot be planned."""

    name: str
    error: Exception | None = None
    stack: list[Location] = field(default_factory=list)


def examine(fn: Callable[..., Any], *args: Any, show_call_stack: bool = False, **kwargs: Any) -> None:
    """Print which torch functions of a program thunder supports, then try to compile and run it.

    The program `fn(*args, **kwargs)` runs twice, and so writes to its arguments twice: in eager, where each
    of its torch calls is compiled by itself, and compiled. Of a compiled object it is the program that was
    compiled.

    Args:
        fn: a function or a module.
        show_call_stack: whether an unsupported function is shown with all lines of the program that led to
            its call, and not only with the innermost one.

    Raises whatever the program raises in eager.
    """
    data = compile_data(fn)
    fn = fn if data is None else data.fn
    recorder = _Recorder()
    with recorder:
        fn(*args, **kwargs)
    operations = list(recorder.operations.values())
    unsupported = [operation for operation in operations if operation.error is not None]
    supported = len(operations) - len(unsupported)
    share = supported / len(operations) if operations else 1.0
    print(f"Found {len(operations)} distinct operations, of which {supported} ({share:.1%}) are supported")
    for operation in unsupported:
        _show(operation, show_call_stack)
    try:
        jit(fn)(*args, **kwargs)
    except Exception as error:
        print(f"\nThe program cannot be compiled and run:\n{_indented(f'{type(error).__name__}: {error}')}")
    else:
        print("\nThe program compiles and runs.")


def _show(operation: _Operation, show_call_stack: bool) -> None:
    print(f"\n{operation.name}")
    for location in operation.stack if show_call_stack else operation.stack[:1]:
        print(f"  at  {location}")
    print(_indented(f"{type(operation.error).__name__}: {operation.error}"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


class _Recorder(TorchFunctionMode):
    """Collects the torch functions that are called, and compiles each call on its own before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, _Operation] = {}
        self._judged: set[tuple[str, str]] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") != "__get__":  # the getter of an attribute is not an operation
            self._judge(func, args, kwargs)
        return func(*args, **kwargs)

    def _judge(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = name_of(func)
        operation = self.operations.setdefault(name, _Operation(name))
        if name.rpartition(".")[2] in _DECIDED:
            return
        # Calls with arguments of equal types are judged alike, and once.
        described = (name, repr(described_arguments(args, kwargs)))
        if operation.error is not None or described in self._judged:
            return
        self._judged.add(described)
        try:
            plan(lambda: func(*args, **kwargs))
        except Exception as error:
            if isinstance(error, ThunderError):
                # a decision on data, or a call that needs data, of which a plan has none
                if "sizes" in error.facts or error.facts.get("needs_data"):
                    return
                error.where.clear()  # the line of the call above, which is not the user's
            operation.error = error
            operation.stack = _user_lines(sys._getframe(2))


def _user_lines(frame: FrameType | None) -> list[Location]:
    """Return the running lines of the examined program, without those in torch's files, innermost first."""
    program = itertools.takewhile(lambda entry: entry[0].f_code is not examine.__code__, walk_stack(frame))
    return [
        Location.of(called.f_code.co_filename, line)
        for called, line in program
        if not is_package_file(called.f_code.co_filename) and not is_torch_file(called.f_code.co_filename)
    ]

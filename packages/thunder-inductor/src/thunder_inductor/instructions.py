"""The vector instructions of the CPU that TorchInductor may use.

TorchInductor finds out by compiling and loading a library for each set of instructions, in each process,
which takes seconds. Here every set that the CPU has is taken to compile, until a region fails to compile;
then TorchInductor tries them. The answer is kept on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch._inductor import config
from torch._inductor.cpu_vec_isa import VecISA, supported_vec_isa_list, valid_vec_isa_list

from thunder.extend import ArtefactCache

__all__ = ["are_assumed", "find_instructions", "keep_instructions", "try_instructions"]

_KEY = "vector instructions"
#: the method by which TorchInductor compiles and loads a library for a set of instructions
_TRY = "check_build"


class _State:
    """Whether TorchInductor's list of this process was neither tried nor read from the cache."""

    assumed = False


def find_instructions(cache: ArtefactCache) -> None:
    """Let TorchInductor use the sets of instructions that the CPU has, unless `cache` has fewer.

    TorchInductor keeps its list as long as the process lives, so that only the first call has an effect.
    """
    if valid_vec_isa_list.cache_info().currsize:
        return
    with config.patch({"cpp.vec_isa_ok": True}), _nothing_is_tried():
        assumed = _text()
    stored = cache.get(_KEY)
    if stored is not None and stored != assumed:
        try_instructions(cache)
        return
    _State.assumed = stored is None


def are_assumed() -> bool:
    """Return whether nothing has shown yet that the compiler has the sets of instructions in use."""
    return _State.assumed


def keep_instructions(cache: ArtefactCache) -> None:
    """Keep the list of this process, after code was compiled with it."""
    _State.assumed = False
    cache.put(_KEY, _text())


def try_instructions(cache: ArtefactCache) -> bool:
    """Let TorchInductor compile for each set of instructions; return whether it must do with fewer."""
    assumed = _text()
    _forget()
    keep_instructions(cache)
    return _text() != assumed


def _text() -> bytes:
    return "\n".join(f"{isa} {isa.bit_width()}" for isa in valid_vec_isa_list()).encode()


@contextmanager
def _nothing_is_tried() -> Iterator[None]:
    """Within the context, every set of instructions is taken to compile and to load."""
    original = getattr(VecISA, _TRY)
    try:
        setattr(VecISA, _TRY, lambda self, code: True)
        yield
    finally:
        setattr(VecISA, _TRY, original)


def _forget() -> None:
    """Clear what TorchInductor remembers of sets of instructions."""
    valid_vec_isa_list.cache_clear()
    for isa in supported_vec_isa_list:
        for name in [name for name in vars(isa) if name.startswith("_is_")]:
            delattr(isa, name)
        methods = [method for kind in type(isa).__mro__ for method in vars(kind).values()]
        for method in methods:
            if hasattr(method, "cache_clear"):
                method.cache_clear()

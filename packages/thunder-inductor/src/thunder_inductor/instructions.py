"""The vector instructions of the CPU that TorchInductor may use.

TorchInductor finds out by compiling and loading a library for each set of instructions, in each process,
which takes seconds. Here the answer is kept on disk.
"""

from __future__ import annotations

from torch._inductor import config
from torch._inductor.cpu_vec_isa import valid_vec_isa_list

from thunder.extend import ArtefactCache

__all__ = ["find_instructions"]

_KEY = "vector instructions"


def find_instructions(cache: ArtefactCache) -> None:
    """Let TorchInductor use the sets of instructions that `cache` has, or try them and keep the answer.

    TorchInductor keeps its list as long as the process lives, so that only the first call has an effect.
    """
    if valid_vec_isa_list.cache_info().currsize:
        return
    stored = cache.get(_KEY)
    if stored is not None:
        with config.patch({"cpp.vec_isa_ok": True}):  # every set that the CPU has is taken to compile
            if _text() == stored:
                return
        valid_vec_isa_list.cache_clear()
    cache.put(_KEY, _text())


def _text() -> bytes:
    return "\n".join(f"{isa} {isa.bit_width()}" for isa in valid_vec_isa_list()).encode()

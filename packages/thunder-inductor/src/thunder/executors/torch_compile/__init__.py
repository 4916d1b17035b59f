"""The executor of TorchInductor under the names that programs of lightning-thunder import."""

from __future__ import annotations

from typing import NoReturn

from thunder_inductor.executor import ex as torch_compile_ex

__all__ = ["torch_compile_cat_ex", "torch_compile_ex"]

#: the same executor: it fuses all that TorchInductor compiles, and not only what surrounds a concatenation
torch_compile_cat_ex = torch_compile_ex


def __getattr__(name: str) -> NoReturn:
    text = f"module {__name__!r} has no attribute {name!r}"
    if name == "make_compiled":
        text = (
            f"{__name__} has no 'make_compiled': torch_compile_ex.compile_regions(regions) compiles regions"
        )
    raise AttributeError(text, name=name)

"""The options of `thunderfx`, divided between `torch.compile` and `thunder.jit`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, Final

import torch

import thunder
from thunder.core.errors import InvalidArgument, UnknownOption

__all__ = ["checked_thunder_options", "divided", "refuse_other_settings"]

#: the arguments of `torch.compile` but for the function, and for those that a backend defines
_OF_TORCH: Final = tuple(
    name for name in inspect.signature(torch.compile).parameters if name not in ("model", "backend")
)


def divided(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options for `torch.compile`, and those for `thunder.jit`.

    Raises UnknownOption for a name that neither has, and InvalidArgument for `backend=`, and for a `mode=`
    that is not "default".
    """
    if "backend" in settings:
        raise InvalidArgument(
            "thunderfx received backend=", hint="Its backend is thunder; use torch.compile."
        )
    of_torch = {name: value for name, value in settings.items() if name in _OF_TORCH}
    of_thunder = {name: value for name, value in settings.items() if name not in _OF_TORCH}
    if of_torch.get("mode") not in (None, "default"):
        refuse_other_settings({"mode": of_torch["mode"]})
    of_thunder = {**(of_torch.pop("options", None) or {}), **of_thunder}
    try:
        return of_torch, checked_thunder_options(of_thunder)
    except UnknownOption as error:
        for name in of_thunder:
            near = difflib.get_close_matches(name, _OF_TORCH, 1)
            if near and repr(name) in str(error):
                raise UnknownOption(
                    f"thunderfx has no option {name!r}. Did you mean {near[0]!r}, of torch.compile?"
                ) from error
        raise


def checked_thunder_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `thunder.jit`, checked by it.

    Raises its errors, and InvalidArgument for transforms that belong to one compiled program: a backend
    compiles several.
    """
    options = dict(options)
    transforms = options.get("transforms") or ()
    for transform in transforms if isinstance(transforms, list | tuple) else (transforms,):
        if isinstance(transform, thunder.Transform) and not getattr(transform, "stateless", False):
            raise InvalidArgument(
                f"the backend of torch.compile received a {type(transform).__name__}",
                found={"transforms": "one instance belongs to one compiled program, a backend makes several"},
                hint="Use thunder.jit, or set stateless = True in a transform without state.",
            )
    thunder.jit(_nothing, **options)
    return options


def refuse_other_settings(settings: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for settings of `torch.compile` that mean nothing to this backend."""
    for name, value in settings.items():
        advice = _MODES.get(value) if name == "mode" else None
        raise InvalidArgument(
            f"the backend thunder has no {name}=",
            found={name: repr(value)},
            hint=advice or "Options of thunder.jit choose executors and transforms.",
        )


#: mode of torch.compile → what to write
_MODES: Final = {
    "reduce-overhead": "thunder.jit(model, transforms=[CUDAGraphTransform()]) replays CUDA graphs.",
    "max-autotune": "inductor_mode='full' lets TorchInductor compile matrix products too.",
    "max-autotune-no-cudagraphs": "inductor_mode='full' lets TorchInductor compile matrix products too.",
}


def _nothing() -> None:
    """Return None."""

"""The dispatch keys of tensors on a device that need not be here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

from thunder.core.entries import TensorFacts
from thunder_store.reasons import NotKept

__all__ = ["keys_on_device"]

_BACKENDS: Final[Mapping[str, str]] = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}
_VIEWS: Final = "ADInplaceOrView"


def keys_on_device(facts: TensorFacts) -> str:
    """Return the dispatch keys that a tensor has on the device of its facts, which may not be here.

    Raises NotKept for a tensor of which it is not known.
    """
    own = facts.dispatch_keys.removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    backend = _BACKENDS.get(facts.device.type)
    if backend in own:
        return facts.dispatch_keys
    here = next((b for b in _BACKENDS.values() if b in own), None)
    if backend is None or here is None or not {*own} <= {here, f"Autograd{here}", f"Autocast{here}", _VIEWS}:
        raise NotKept("device", f"a tensor with the keys {facts.dispatch_keys} on {facts.device}")
    names = [backend, f"Autocast{backend}", *(_VIEWS for _ in own if _VIEWS in own)]
    names += [f"Autograd{backend}"] if f"Autograd{here}" in own else []
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    for name in dict.fromkeys(names[1:]):
        keys = keys.add(getattr(torch._C.DispatchKey, name))
    return str(keys)

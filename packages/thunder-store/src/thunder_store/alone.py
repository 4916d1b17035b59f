"""Programs without their model: what an artefact computes from arguments and kept weights, for inference.

Of the facts those about the arguments are left: the others are about the model, whose program is in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from thunder.core.entries import (
    CompileData,
    Interface,
    TraceRequest,
    prologue_trace,
)
from thunder.core.langctxs import TORCH
from thunder_store.entries import check_state, read_inputs, read_run
from thunder_store.fact_reader import FactReader
from thunder_store.reasons import NotKept, NotUsed

__all__ = ["AloneProgram", "read_alone", "weights_of", "write_weights"]


def weights_of(document: Mapping[str, Any], fn: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a program that do not come with the arguments, by the names of its inputs.

    Raises NotKept for a program that needs more of its model than tensors.
    """
    if document["programs"]["connection"] is not None or document["programs"]["around"] is not None:
        raise NotKept("weights", "it computes gradients")
    if document["written"] or not all(_is_of_call(document, place) for place in document["reached"]):
        raise NotKept("weights", "it writes to objects, or returns them")
    weights = {}
    for name, place, *_ in document["inputs"]:
        if not _is_of_call(document, place):
            weights[name] = _value_at(document, place, fn)
    return weights


def write_weights(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors to a file of safetensors."""
    save_file({name: t.detach().contiguous().clone() for name, t in weights.items()}, path)


def _root(document: Mapping[str, Any], place: int) -> Any:
    while type(document["paths"][place][0]) is int:
        place = document["paths"][place][0]
    return document["paths"][place]


def _is_of_call(document: Mapping[str, Any], place: int) -> bool:
    return bool(_root(document, place)[0] == "call")


def _value_at(document: Mapping[str, Any], place: int, fn: Any) -> torch.Tensor:
    if _root(document, place)[0] != "fn":
        raise NotKept("weights", "a tensor is not one of the model")
    request = _request(fn, (), {})
    value: torch.Tensor = FactReader(document, request).at(place)
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise NotKept("weights", "an input of the model is not a tensor")
    return value


def _request(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TraceRequest:
    return TraceRequest(fn=fn, args=args, kwargs=kwargs, language=TORCH, sharp_edge=lambda error: None)


class AloneProgram:
    """One program of an artefact, with the weights that it reads."""

    def __init__(
        self, guard: Callable[..., Any], run: Callable[..., Any], epilogue: Any, weights: Sequence[Any]
    ) -> None:
        self._guard, self._run, self._epilogue, self._weights = guard, run, epilogue, weights

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call; raise NotUsed for a call that the program is not for."""
        found = self._guard(*args, **kwargs)
        if found is None:
            raise NotUsed("the arguments are others")
        inputs, reached = iter(found[0]), found[1]
        result = self._run(*(next(inputs) if w is None else w for w in self._weights))
        return result if self._epilogue is None else self._epilogue(*result, *reached)


def read_alone(
    document: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    data: CompileData,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> AloneProgram:
    """Return a program for a call; raise NotUsed where it is not for the call."""
    check_state(document)
    reader = FactReader(document, _request(None, args, kwargs))
    rows = [row for row in document["facts"] if _is_about_call(document, row)]
    with torch._C.DisableTorchFunction():
        facts = reader.read(rows)
        own = [row for row in document["inputs"] if _is_of_call(document, row[1])]
        reached = [reader.path(p) for p in document["reached"]]
        interface = Interface(facts, read_inputs(own, reader), reached, sizes=reader.sizes)
        guard = prologue_trace(interface, reader.roots).python_callable()
    run, epilogue = read_run(document, reader, data)
    taken = {name for name, *_ in own}
    values = [
        None if name in taken else _weight(document, name, place, weights)
        for name, place, *_ in document["inputs"]
    ]
    return AloneProgram(guard, run, epilogue, values)


def _is_about_call(document: Mapping[str, Any], row: Sequence[Any]) -> bool:
    """Return whether a fact is about arguments alone."""
    places = [row[1], *(a[1] for a in row[2:] if type(a) is list and a[:1] == ["p"])]
    return all(_is_of_call(document, place) for place in places)


def _weight(
    document: Mapping[str, Any], name: str, place: int, weights: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return a weight in the layout that the program was compiled for."""
    if name not in weights:
        raise NotUsed(f"the weight {name} is not there")
    facts = next(
        (row[2] for row in document["facts"] if row[1] == place and row[2:] and row[2][:1] == ["t"]), None
    )
    if facts is None:
        raise NotUsed(f"nothing is known of the weight {name}")
    _, _, shape, strides, dtype, device, *_ = facts
    weight = weights[name].to(device)
    if list(weight.shape) != shape or str(weight.dtype) != dtype:
        raise NotUsed(f"the weight {name} has another form")
    if strides is not None and list(weight.stride()) != strides:
        weight = torch.empty_strided(shape, strides, dtype=weight.dtype, device=device).copy_(weight)
    return weight

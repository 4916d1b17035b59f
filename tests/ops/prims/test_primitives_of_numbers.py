"""Primitives that are called with numbers where they take tensors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import thunder
from thunder.core import dtypes, prims
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol
from thunder.core.trace import detached_trace

X = torch.ones(2, 2)

#: parameters of which a meta function reads nothing
READS_NOTHING_OF = {
    *(("add_unmodelled", "b"), ("embedding_renorm", "a"), ("overwrite", "old"), ("raise_error", "after")),
    ("replace_data", "old"),
    ("scatter_add", "value"),
}
#: parameters behind others, which the arguments of this test do not fit, and what the error is about
ANOTHER_ERROR = {
    **{
        (f"{kind}_norm_update", name): "running_mean"
        for kind in ("batch", "instance")
        for name in ("running_var", "weight", "bias")
    },
    ("as_strided_scatter", "a"): r"into a view of shape \(0,\)",
    ("convolution", "bias"): "0 groups",
    ("index", "a"): r"argument 'indices\[0\]' must be a tensor, not int 0",
    ("put_grad", "grad_for"): "the first argument of put_grad is 3",
    ("put_grad", "grad"): "the second argument of put_grad is 3",
    ("set_generator_state", "state"): "a torch.Generator is expected, not int",
}


def takes_tensor(parameter: inspect.Parameter) -> bool:
    return "TensorProxy" in str(parameter.annotation) and "float" not in str(parameter.annotation)


def argument(parameter: inspect.Parameter, t: Any) -> Any:
    """Return an argument that the annotation of a parameter allows."""
    kind = str(parameter.annotation)
    if parameter.name == "index":
        return TensorProxy(shape=(2, 2), dtype=torch.int64, device="cpu")
    if takes_tensor(parameter) or kind == "Any":
        return [t] if kind.startswith("Sequence") else t
    if parameter.default is not parameter.empty:
        return parameter.default
    if "Sequence[" in kind or "tuple[" in kind:
        return (0,)
    return {"bool": False, "float": 1.0, "dtype": dtypes.float32, "Dtype": dtypes.float32}.get(kind, 0)


PRIMITIVES = [s for s in vars(prims).values() if isinstance(s, Symbol) and s.is_prim and s.meta is not None]
CALLS = [
    (symbol, parameter)
    for symbol in PRIMITIVES
    for parameter in inspect.signature(symbol.meta).parameters.values()
    if takes_tensor(parameter)
]


def test_every_primitive_names_the_parameter_that_received_a_number():
    assert len(CALLS) > 150
    for symbol, wrong in CALLS:
        parameters = inspect.signature(symbol.meta).parameters.values()
        with detached_trace():
            t = TensorProxy(shape=(2, 2), dtype=torch.float32, device="cpu")
            arguments = {p.name: argument(p, t) for p in parameters}
            arguments[wrong.name] = [3] if isinstance(arguments[wrong.name], list) else 3
            if (symbol.name, wrong.name) in READS_NOTHING_OF:
                symbol(**arguments)
                continue
            own = rf"argument '({wrong.name}(\[0\])?|input)' must be (a tensor|Tensor), not int"
            text = ANOTHER_ERROR.get((symbol.name, wrong.name), rf"{symbol.name}\(\): {own}")
            with pytest.raises((thunder.ThunderError, TypeError), match=text):
                symbol(**arguments)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda a: prims.where(True, 1, 2), r"where\(\): argument 'pred' must be a tensor, not bool True"),
        (lambda a: prims.where(a > 0, 1, 2), '"where" not implemented for .*, int 1, int 2'),
        (lambda a: prims.convert_element_type(3, dtypes.float32), "argument 'a' must be a tensor, not int 3"),
        (lambda a: prims.cat([a, 3.5], 0), r"argument 'tensors\[1\]' must be a tensor, not float 3.5"),
    ],
)
def test_a_program_that_calls_one_is_refused_with_its_line(program, text):
    with pytest.raises(thunder.OperatorError, match=text) as caught:
        thunder.jit(program)(X)
    assert "test_primitives_of_numbers.py" in str(caught.value)


def test_an_error_within_a_meta_function_is_not_taken_for_one_of_the_call(monkeypatch):
    monkeypatch.setitem(vars(prims.sum), "meta", lambda a, *args, **kwargs: (7).shape)
    with detached_trace():
        t = TensorProxy(shape=(2, 2), dtype=torch.float32, device="cpu")
        with pytest.raises(AttributeError, match="'int' object has no attribute 'shape'"):
            prims.sum(t, (0,))

"""Models and validated functions of pydantic in programs."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import torch
from torch.testing import assert_close

import thunder
from thunder import UnsupportedProgram

pydantic = pytest.importorskip("pydantic")
SETTINGS: dict[str, Any] = {"arbitrary_types_allowed": True}
LIMITS = {"most": 3.0}


class Options(pydantic.BaseModel):
    """Options with a converted number, a constraint, a default and a validator that reads a global."""

    scale: float
    count: Annotated[int, pydantic.Field(gt=0)] = 1
    names: list[str] = pydantic.Field(default_factory=list)

    @pydantic.field_validator("scale")
    @classmethod
    def limited(cls, value: float) -> float:
        return min(value, LIMITS["most"])


class Batch(pydantic.BaseModel):
    """A model with a tensor and another model."""

    model_config = pydantic.ConfigDict(**SETTINGS)
    x: torch.Tensor
    options: Options | None = None

    @pydantic.model_validator(mode="after")
    def doubled(self) -> Batch:
        self.x = self.x * 2
        return self


class Private(pydantic.BaseModel):
    a: int
    _b: int = pydantic.PrivateAttr(default=1)


@pydantic.validate_call(config=SETTINGS, validate_return=True)
def scaled(x: torch.Tensor, k: int = 2, *, name: str = "a") -> torch.Tensor:
    return x * k * len(name) * LIMITS["most"]


def makes_models(x: torch.Tensor, scale: Any) -> Any:
    batch = Batch(x=x, options={"scale": scale, "count": "2"})
    options = Options(scale=scale, names=["a", "b"])
    return batch.x * batch.options.count * options.scale + len(options.names), batch, options


def calls_a_validated_function(x: torch.Tensor, k: Any) -> Any:
    return scaled(x, k) + scaled(x, k="3", name="ab")


def catches(x: torch.Tensor, count: Any) -> Any:
    try:
        return x * Options(scale=1, count=count).count
    except pydantic.ValidationError as error:
        return x * error.error_count() - 5


PROGRAMS = {
    makes_models: (1, 2, "2.5", 9, 1),
    calls_a_validated_function: (1, 2, "2", 2.0),
    catches: (1, -1, "x", 2),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_validation_is_that_of_eager_in_each_call(program: Any) -> None:
    compiled = thunder.jit(program)
    for i, value in enumerate(PROGRAMS[program]):
        leaves = [torch.arange(3.0).add(i).requires_grad_() for _ in range(2)]
        expected, found = program(leaves[0], value), compiled(leaves[1], value)
        if isinstance(expected, tuple):
            (expected, batch, options), (found, made, others) = expected, found
            assert (type(made), made.options, others) == (Batch, batch.options, options)
            assert (made.model_fields_set, others.model_fields_set) == ({"x", "options"}, {"scale", "names"})
            assert_close(made.x, batch.x)
        assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
        assert_close(leaves[1].grad, leaves[0].grad)


@pytest.mark.parametrize("program", [makes_models, calls_a_validated_function])
def test_what_a_function_of_a_validator_reads_is_guarded(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, x = thunder.jit(program), torch.ones(3)
    for most in (3.0, 1.5, 3.0):
        monkeypatch.setitem(LIMITS, "most", most)
        found, expected = compiled(x, 2), program(x, 2)
        assert_close(*((o[0] if isinstance(o, tuple) else o) for o in (found, expected)))
    assert thunder.cache_misses(compiled) == 2


def test_an_error_of_validation_is_that_of_eager() -> None:
    def program(x: torch.Tensor) -> Any:
        return x * Options(scale="no").scale

    with pytest.raises(pydantic.ValidationError, match="should be a valid number"):
        thunder.jit(program)(torch.ones(3))


class Countable:
    def __int__(self) -> int:
        return 2


def makes_private(x: torch.Tensor, own: Any) -> Any:
    return x * Private(a=1).a


def passes_an_object(x: torch.Tensor, own: Any) -> Any:
    return x * Options(scale=own).scale


def passes_a_number(x: torch.Tensor, own: Any) -> Any:
    return x * Options(scale=x.sum().item()).scale


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (makes_private, "class Private, whose __init__ or model_post_init"),
        (passes_an_object, "an object of type Countable, into which"),
        (passes_a_number, "a number out of a tensor, into which"),
    ],
)
def test_what_native_code_would_read_unseen_is_refused(program: Any, message: str) -> None:
    with pytest.raises(UnsupportedProgram, match=message):
        thunder.jit(program)(torch.ones(3), Countable())

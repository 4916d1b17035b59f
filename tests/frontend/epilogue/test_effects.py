"""Effects as a user meets them: order, number of times, and the epilogue that replays them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import Bag, ramp


def test_effects_happen_once_per_call_at_the_tracing_call_too():
    log: list[float] = []

    def program(x):
        log.append(1.0)
        return x * 2

    compiled = thunder.jit(program)
    for count in (1, 2, 3):
        compiled(ramp(3))
        assert log == [1.0] * count


def test_prints_and_writes_keep_their_order(capsys):
    def program(x, log):
        print("one")
        log.append("two")
        print("three", len(log))
        return x

    compiled = thunder.jit(program)
    for n in (1, 2):
        log = ["x"] * n
        compiled(ramp(3), log)
        assert capsys.readouterr().out == f"one\nthree {n + 1}\n"
        assert log == ["x"] * n + ["two"]


def test_a_program_without_effects_writes_nothing_back():
    compiled = thunder.jit(lambda x: x * 2)
    compiled(ramp(3))
    text = "".join(map(str, thunder.last_epilogue_traces(compiled)))
    assert "_buffers" not in text
    assert "[" not in text.partition("def epilogue")[2].replace('"cpu f32[3]"', "")


def test_the_epilogue_prints_what_it_writes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cnt", torch.zeros(()))

        def forward(self, x, d):
            self.cnt = self.cnt + 1
            d["k"] = x * 2
            return {"y": x + self.cnt}

    compiled = thunder.jit(Model())
    d: dict = {}
    result = compiled(ramp(3), d)
    text = str(thunder.last_epilogue_traces(compiled)[-1])
    assert "def epilogue(" in text
    assert "self._buffers['cnt'] = " in text
    assert "['k'] = " in text
    assert "return {'y': " in text
    assert torch.equal(result["y"], ramp(3) + 1)
    assert torch.equal(d["k"], ramp(3) * 2)


def test_an_attribute_write_prints_as_an_assignment():
    def program(x, o):
        o.t = x * 2
        return x

    compiled = thunder.jit(program)
    compiled(ramp(3), Bag())
    assert ".t = " in str(thunder.last_epilogue_traces(compiled)[-1])


def test_a_write_reaches_the_object_of_this_call_and_not_that_of_the_first():
    def program(x, o):
        o.t = x * 2
        return x

    compiled = thunder.jit(program)
    first, second = Bag(), Bag()
    compiled(ramp(3), first)
    compiled(ramp(3, start=9.0), second)
    assert torch.equal(first.t, ramp(3) * 2)
    assert torch.equal(second.t, ramp(3, start=9.0) * 2)
    assert thunder.cache_hits(compiled) == 1


def test_guards_run_before_anything_is_written():
    def program(x, log, k):
        log.append(k)
        return x * k

    compiled, log = thunder.jit(program), []
    compiled(ramp(3), log, 1)
    for _ in range(2):
        compiled(ramp(3), log, 2)
    assert log == [1, 2, 2]


def test_a_kv_cache_grows_call_by_call():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.zeros(8, 3))
            self.length = 0

        def forward(self, x):
            n = x.shape[0]
            self.k[self.length : self.length + n] = x
            self.length = self.length + n
            return self.k[: self.length].sum(0)

    eager, model = Cache(), Cache()
    compiled = thunder.jit(model)
    for n in (3, 1, 1, 1):
        assert torch.equal(compiled(ramp(n, 3)), eager(ramp(n, 3)))
    assert model.length == eager.length == 6
    assert torch.equal(model.k, eager.k)


def test_an_effect_of_a_failed_execution_is_applied_as_by_eager():
    def program(x, i, log):
        log.append(1)
        return torch.nn.functional.embedding(i, x)

    compiled, log = thunder.jit(program), []
    compiled(ramp(3, 2), torch.tensor([0]), log)
    with pytest.raises(IndexError, match="index out of range"):
        compiled(ramp(3, 2), torch.tensor([7]), log)
    assert log == [1, 1]


def test_an_attribute_that_is_set_and_deleted_again_is_not_there_afterwards():
    class Holder:
        pass

    def program(x, o):
        o.scratch = x
        del o.scratch
        return x * 2

    compiled, o = thunder.jit(program), Holder()
    for _ in range(2):
        assert torch.equal(compiled(ramp(3), o), ramp(3) * 2)
        assert not hasattr(o, "scratch")
        o.scratch = 1  # eager deletes this one, too


class Holder:
    """A plain class: ``__init__`` runs while tracing, and not when a result is built again."""

    made = 0

    def __init__(self, value):
        self.value = value
        self.twice = [value, value]


class Slotted(Holder):
    __slots__ = ("extra",)

    def __init__(self, value):
        super().__init__(value)
        self.extra = value + 1


@dataclass
class Output:
    out: torch.Tensor
    cache: Any = None


def test_objects_of_any_class_are_built_as_parts_of_an_output():
    def program(x):
        cache = Slotted(x * 2)
        return Output(x, [cache, cache])

    compiled, x = thunder.jit(program), ramp(3)
    first, second = compiled(x), compiled(x)
    for result in (first, second):
        a, b = result.cache
        assert a is b
        assert type(a) is Slotted
        assert a.twice[0] is a.twice[1] is a.value
        assert torch.equal(a.value, x * 2)
        assert torch.equal(a.extra, x * 2 + 1)
    assert first.cache[0] is not second.cache[0]


def test_classes_of_one_name_are_told_apart_in_a_result():
    def other():
        @dataclass
        class Output:
            out: Any

        return Output

    another = other()
    a, b = thunder.jit(lambda x: (Output(x), another(x)))(ramp(3))
    assert (type(a), type(b)) == (Output, another)


def contains_itself(x):
    items = [x]
    items.append(items)
    return items


def makes_a_class(x):
    class Local:
        pass

    local = Local()
    local.x = x
    return Output(x, local)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (contains_itself, "contains itself"),
        (makes_a_class, "class makes_a_class.<locals>.Local"),
    ],
    ids=["cycle", "class"],
)
def test_what_cannot_be_built_again_is_refused(program, words):
    with pytest.raises(thunder.UnsupportedProgram, match=words):
        thunder.jit(program)(ramp(3))


def test_an_output_of_another_call_is_an_argument_whose_items_and_attributes_are_facts():
    def program(x, output):
        return x * output["out"] * output.scale, output

    compiled, x = thunder.jit(program), ramp(3)
    output = MappingOutput(out=x + 1, scale=2.0)
    for scale, misses in ((2.0, 1), (2.0, 1), (3.0, 2)):
        output.scale = scale
        result, same = compiled(x, output)
        assert same is output
        assert torch.equal(result, x * (x + 1) * scale)
        assert thunder.cache_misses(compiled) == misses
    dict.__setitem__(output, "out", x + 5)
    assert torch.equal(compiled(x, output)[0], x * (x + 5) * 3.0)


@dataclass
class MappingOutput(OrderedDict):
    """As the outputs of transformers: a dict by items, a dataclass by attributes."""

    out: Any = None
    scale: Any = None

    def __post_init__(self):
        for name in ("out", "scale"):
            OrderedDict.__setitem__(self, name, getattr(self, name))

    def __getitem__(self, key):
        return dict(self.items())[key]


def test_a_list_that_changes_after_an_operator_got_it_is_what_the_operator_got():
    def program(x):
        tensors, numbers = [x, x + 1], [1.0, 2.0]
        joined, made = torch.cat(tensors), torch.tensor(numbers)
        tensors.append(x)
        tensors[0] = x * 9
        numbers[0] = 5.0
        return joined, made, torch.stack(tensors)

    for expected, actual in zip(program(ramp(3)), thunder.jit(program)(ramp(3)), strict=True):
        assert torch.equal(actual, expected)

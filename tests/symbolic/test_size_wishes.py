"""Sizes that the user asked to stay free do, or the compile is refused with the line that fixes them."""

import itertools

import pytest
import torch

import thunder
from thunder.base import size_wishes

R = torch.randn


def _compiled(fn, cache="constant values", **options):
    return thunder.jit(fn, executors=["torch"], cache=cache, **options)


def _scaled(x, y):
    return (x * 2).sum(0) + y


def _loop(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total


def _size_facts(compiled):
    guards = thunder.compile_stats(compiled).interpreter_cache[-1].guards
    return [str(fact) for fact in guards if fact.sym.name == "check_sizes"]


def _marked(*shape, dim=0, **bounds):
    x = R(*shape)
    thunder.mark_dynamic(x, dim, **bounds)
    return x


def test_a_marked_size_is_free_and_the_others_are_numbers():
    compiled = _compiled(_scaled)
    for x in (_marked(3, 4), R(5, 4), R(1, 4), R(0, 4)):
        y = R(4)
        torch.testing.assert_close(compiled(x, y), _scaled(x, y))
    assert (thunder.cache_misses(compiled), _size_facts(compiled)) == (1, [])
    x, y = R(3, 1), R(4)
    torch.testing.assert_close(compiled(x, y), _scaled(x, y))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("mode", ["constant values", "symbolic values", "no caching"])
def test_bounds_are_facts_and_answer_questions(mode):
    def program(x):
        return x * 2 if x.shape[0] > 1 else x

    compiled = _compiled(program, cache=mode)
    for size in (2, 6, 5, 1, 7):
        x = _marked(4, min=2, max=6) if size == 2 else R(size)
        torch.testing.assert_close(compiled(x), program(x))
    if mode != "no caching":
        (first, *_) = thunder.compile_stats(compiled).interpreter_cache
        facts = [str(fact) for fact in first.guards if fact.sym.name == "check_sizes"]
        assert facts == ["args[0].shape[0] >= 2", "args[0].shape[0] <= 6"]


class _Batches(torch.nn.Module):
    def forward(self, batch, *rest, factor=None):
        y = batch["ids"] * 2 if factor is None else batch["ids"] * factor
        return y.sum() + sum(r.sum() for r in rest)


@pytest.mark.parametrize(
    ("fn", "option", "call", "misses"),
    [
        (_scaled, {"x": 0}, lambda n: ((R(n, 4), R(4)), {}), 1),
        (_scaled, {"x": -2}, lambda n: ((), {"x": R(n, 4), "y": R(4)}), 1),
        (_scaled, {"x": {0: None}}, lambda n: ((R(n, 4), R(4)), {}), 1),
        (_scaled, {"x": (0, 1), "y": 0}, lambda n: ((R(n, n + 3), R(n + 3)), {}), 1),
        (_scaled, {"x": {0: (2, None)}}, lambda n: ((R(n + 2, 4), R(4)), {}), 1),
        (_scaled, {"y": 0}, lambda n: ((R(3, 1), R(n + 2)), {}), 1),
        (torch.nn.Linear(4, 2), {"input": 0}, lambda n: ((R(n, 4),), {}), 1),
        (_Batches(), {"batch['ids']": 0}, lambda n: (({"ids": R(n, 2)},), {}), 1),
        (_Batches(), {"args[1]": 0}, lambda n: (({"ids": R(3, 2)}, R(n)), {}), 1),
        (
            _Batches(),
            {"factor": 0, "batch['ids']": 0},
            lambda n: (({"ids": R(n, 2)},), {"factor": R(n, 2)}),
            1,
        ),
        (_scaled, {"y": ()}, lambda n: ((R(n, 4), R(4)), {}), 4),
    ],
)
def test_the_option_names_arguments(fn, option, call, misses):
    compiled = _compiled(fn, dynamic_sizes=option)
    for n in (3, 5, 2, 4):
        args, kwargs = call(n)
        torch.testing.assert_close(compiled(*args, **kwargs), fn(*args, **kwargs))
    assert thunder.cache_misses(compiled) == misses


@pytest.mark.parametrize("mode", ["constant values", "symbolic values"])
@pytest.mark.parametrize("by_mark", [True, False])
def test_a_wish_that_the_program_breaks_is_refused_with_the_line(mode, by_mark):
    compiled = _compiled(_loop, cache=mode, dynamic_sizes=None if by_mark else {"x": 0})
    with pytest.raises(thunder.UnsupportedProgram) as refusal:
        compiled(_marked(3, 4) if by_mark else R(3, 4))
    text = str(refusal.value)
    assert "args[0].shape[0] was asked to stay free, and the program fixes it to 3" in text
    assert "for i in range(x.shape[0]):" in text
    assert thunder.compile_stats(compiled).interpreter_cache == []
    if by_mark:
        assert torch.equal(compiled(torch.ones(3, 4)), torch.full((4,), 3.0))


def _by_relations(x, y):
    if x.shape[0] == 2 * y.shape[0]:
        x = x * 3
    return x if y.shape[0] == 2 else x + 1


def test_the_line_is_the_one_after_which_the_size_is_determined():
    with pytest.raises(thunder.UnsupportedProgram, match=r"return x if y\.shape\[0\] == 2"):
        _compiled(_by_relations, dynamic_sizes={"x": 0, "y": 0})(R(4), R(2))


def _as_number(x):
    return x * (x.shape[0] / 2).as_integer_ratio()[0]


def _as_key(x):
    return {x.shape[0]: x}


def _as_text(x):
    return x * len(str(x.shape[0]))


def _as_shape_of_a_parameter(x, weight):
    return x @ weight


@pytest.mark.parametrize("fn", [_loop, _as_number, _as_key, _as_text, _as_shape_of_a_parameter])
def test_each_way_to_need_the_number_is_refused_in_words(fn):
    args = (torch.nn.Parameter(R(5, 2)),) if fn is _as_shape_of_a_parameter else ()
    with pytest.raises(thunder.UnsupportedProgram, match="was asked to stay free") as refusal:
        _compiled(fn)(_marked(3, 5, dim=(0, 1)), *args)
    assert "test_size_wishes.py:" in str(refusal.value)


class _Renaming(thunder.Transform):
    def transform_traces_pre_prologue(self, prologue, computation, epilogue, **kwargs):
        return prologue, computation, epilogue


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"cache": "same input"}, "same input"), ({"transforms": [_Renaming()]}, "_Renaming changes how")],
)
def test_a_wish_is_refused_where_sizes_are_numbers(options, reason):
    compiled = _compiled(_scaled, **options)
    with pytest.raises(thunder.UnsupportedProgram, match=reason):
        compiled(_marked(3, 4), R(4))
    x, y = R(3, 4), R(4)
    torch.testing.assert_close(compiled(x, y), _scaled(x, y))


def test_a_wish_for_a_parameter_or_a_global_is_refused():
    with pytest.raises(thunder.InvalidArgument, match="sizes of a Parameter are numbers"):
        thunder.mark_dynamic(torch.nn.Parameter(R(3)), 0)
    weight = _marked(3)
    with pytest.raises(thunder.UnsupportedProgram, match="that do not come with the arguments"):
        _compiled(lambda x: x * weight)(R(3))
    with pytest.raises(thunder.UnsupportedProgram, match="sizes of parameters"):
        _compiled(_scaled, dynamic_sizes={"x": 0})(torch.nn.Parameter(R(3, 4)), R(4))
    with pytest.raises(thunder.UnsupportedProgram, match="a compiled program marks a tensor"):
        _compiled(lambda x: thunder.mark_dynamic(x, 0))(R(3))


def test_the_error_of_a_program_is_its_own():
    def program(x):
        raise KeyError(x.shape[0])

    with pytest.raises(KeyError, match="3"):
        _compiled(program, dynamic_sizes={"x": 0})(R(3))


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (lambda: thunder.mark_dynamic(3, 0), "takes a tensor"),
        (lambda: thunder.mark_dynamic(R(3), 1), "names dimension 1 of a tensor with 1"),
        (lambda: thunder.mark_dynamic(R(3), 0, min=4), "has the size 3"),
        (lambda: thunder.mark_dynamic(R(3), 0, min=3, max=3), "leave no choice"),
        (lambda: thunder.mark_dynamic(R(3), 0, max=2.5), "is 2.5"),
        (lambda: _compiled(_scaled, dynamic_sizes={"z": 0}), "names 'z', which is not an argument"),
        (lambda: _compiled(_scaled, dynamic_sizes={"x": "rows"}), "is 'rows'"),
        (lambda: _compiled(_scaled, dynamic_sizes={"x": True}), "is True"),
        (lambda: _compiled(_scaled, dynamic_sizes={0: 0}), "has the key 0"),
        (lambda: _compiled(_scaled, dynamic_sizes={"x": {0: 3}}), "is {0: 3}"),
        (lambda: _compiled(_scaled, dynamic_sizes=[0]), "dynamic_sizes"),
        (lambda: _compiled(_scaled, dynamic_sizes={"x": 2})(R(3, 4), R(4)), "names dimension 2"),
        (lambda: _compiled(_scaled, dynamic_sizes={"x": {0: (2, 9)}})(R(1, 4), R(4)), "is 1, and was asked"),
    ],
)
def test_a_wrong_wish_is_an_error_of_the_caller(mark, message):
    with pytest.raises(thunder.InvalidArgument) as error:
        mark()
    assert message in str(error.value)


def test_marks_do_not_outlive_their_tensors():
    before = len(size_wishes._marks)
    x = _marked(3)
    assert size_wishes.are_marked()
    assert len(size_wishes._marks) == before + 1
    del x
    assert len(size_wishes._marks) == before


def test_each_bound_that_is_broken_refuses_the_entry():
    compiled = _compiled(_scaled)
    compiled(_marked(3, 4, dim=(0, 1), min=2, max=5), _marked(4, min=3, max=6))
    entry = thunder.compile_stats(compiled).interpreter_cache[0]
    facts = [fact for fact in entry.guards if fact.sym.name == "check_sizes"]
    broken = set()
    for a, b, c in itertools.product(range(8), repeat=3):
        arguments = torch.ones(a, b), torch.ones(c)
        failures = {str(f) for f in facts if f.failure({"args": arguments, "kwargs": {}}) is not None}
        broken |= failures
        assert (entry.prologue_fn(*arguments) is None) == bool(failures)
        kept = a in range(2, 6) and b in range(2, 6) and c in range(3, 7) and b == c
        assert kept == (not failures)
    assert broken == {str(fact) for fact in facts}

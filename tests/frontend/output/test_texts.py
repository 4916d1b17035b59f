"""Texts of tensors and of numbers out of them are made in each call; to look into one is a decision."""

# ruff: noqa: UP031  (formatting by percent is what is tested)

from __future__ import annotations

import collections
import logging
import types
import warnings
from collections import Counter

import pytest
import torch

import thunder
from thunder.extend import OperatorExecutor

PROGRAMS = {
    "percent of a mapping": lambda x: "%(x)s" % collections.OrderedDict(x=x),
}
#: these are made in each call
MADE = {
    "format_map": lambda x: "a {x} {x!r}".format_map({"x": x}),
    "f-string": lambda x: f"a {x} {x!r} {x.shape}",
    "percent": lambda x: "%s" % x,
    "percent of a list": lambda x: "%s" % [x],
    "percent of a number": lambda x: "%.2f|%s" % (x.sum().item(), 3) + "%5.1f" % x.sum().item(),
    "percent of several": lambda x: (
        "%+08.3f|%d|%5d|%g|%e|%s|%%|% .1f|%s"
        % (
            x.mean().item(),
            3,
            x.argmax().item(),
            x.sum().item(),
            x.mean(),
            x.max().item(),
            x.mean().item(),
            [x],
        )
    ),
    "percent by name": lambda x: "%(x)s" % {"x": x},
    "method": lambda x: x.__format__(""),
    "text of an exception": lambda x: str(ValueError(x)),
    "repr of a deque": lambda x: repr(collections.deque([x])),
    "text of a namespace": lambda x: str(types.SimpleNamespace(x=x)),
    "text of a namespace of a number": lambda x: str(types.SimpleNamespace(x=x.sum().item())),
    "repr of an exception": lambda x: repr(KeyError(x)) + str(KeyError(x.sum().item(), x)),
    "str": lambda x: "[" + ", ".join([str(x), repr([x])]) + "]",
    "number": lambda x: {"loss": f"{x.sum().item():.3f}"},
}
#: these look into them
LOOKING = {
    "comparison": lambda s: s == "a",
    "length": lambda s: len(s),
    "truth": lambda s: 1 if s else 2,
    "key": lambda s: {s: 1},
    "search": lambda s: "-" in s,
    "method": lambda s: s.upper(),
    "item": lambda s: s[0],
    "padding": lambda s: f"{s:>10}",
    "number": lambda s: float(s),
    "order": lambda s: sorted(["a", s]),
    "repeated": lambda s: [c for c in s],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_native_code_that_makes_a_text_of_a_tensor_is_refused(name):
    with pytest.raises(thunder.UnsupportedProgram, match="the text of a tensor shows its values"):
        thunder.jit(PROGRAMS[name])(torch.ones(2))


@pytest.mark.parametrize("name", MADE)
def test_a_text_of_values_is_made_in_each_call(name):
    compiled = thunder.jit(MADE[name])
    for x in (torch.ones(2), torch.zeros(2)):
        assert compiled(x) == MADE[name](x)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("kind", ["number", "tensor"])
@pytest.mark.parametrize("name", LOOKING)
def test_a_program_that_looks_into_a_text_of_a_number_decides_on_it(name, kind):
    def program(x):
        total = x.sum().item() if kind == "number" else x.sum()
        return LOOKING[name](f"{total:.3f}")

    compiled = thunder.jit(program)
    for value in (1.0, 1.0, 0.0, 2.0, 1.0):
        assert compiled(torch.full((2,), value)) == program(torch.full((2,), value))
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("name", LOOKING)
def test_a_program_that_looks_into_a_text_of_a_tensor_is_refused(name):
    with pytest.raises(thunder.UnsupportedProgram, match="the text of a tensor shows its values"):
        thunder.jit(lambda x: LOOKING[name](f"{x}"))(torch.ones(2))


#: name → program of a list of numbers out of a tensor, whose texts native code takes out of iterators
ITERATED = {
    "set": lambda numbers: sorted(set(str(n) for n in numbers)),
    "set of pairs": lambda numbers: sorted({(str(n), 1) for n in numbers}),
    "set of a map": lambda numbers: sorted(set(map(str, numbers))),
    "updated": lambda numbers: sorted({"1"}.union(str(n) for n in numbers)),
    "dict": lambda numbers: dict(zip(map(str, numbers), "abc", strict=False)),
    "keys": lambda numbers: dict.fromkeys(str(n) for n in numbers),
    "pair as a key": lambda numbers: [{("1", 2): 3}.get((str(n), 2)) for n in numbers],
    "counted": lambda numbers: dict(Counter(str(n) for n in numbers)),
    "sorted": lambda numbers: sorted(str(n) for n in numbers),
    "after": lambda numbers: ("1" in map(str, numbers), set(map(abs, (1, -1)))),
    "methods of tuples": lambda numbers: (str(numbers[0]), "2").count("2"),
    "one tuple twice": lambda numbers: (lambda pair: pair == pair)((str(numbers[0]), 1)),
    "views": lambda numbers: "1" in {0: str(numbers[0])}.values(),
    "evaluated": lambda numbers: eval(f"{numbers[0]} + 1"),
    "attribute": lambda numbers: getattr(Table, f"item{numbers[0]}", None),
    "class": lambda numbers: (f"{numbers[0]}".__class__, type(f"{numbers[0]}")),
}


class Table:
    item1 = "one"
    item2 = "two"


@pytest.mark.parametrize("name", ITERATED)
def test_texts_that_native_code_takes_out_of_iterators_are_those_of_eager(name):
    def program(x):
        return ITERATED[name]([i.item() for i in x])

    compiled = thunder.jit(program, recompile_limit=None)
    for values in ([1, 2, 10], [1, 2, 10], [2, 2, 1], [10, 1, 10]):
        assert compiled(torch.tensor(values)) == program(torch.tensor(values))


def test_texts_of_values_are_printed_and_logged(capsys, caplog):
    def program(x):
        loss = x.sum().item()
        print(f"loss {loss:.2f}", x.max(), loss, sep="|")
        logging.getLogger("texts").warning(f"mean {x.mean()}")
        return type(f"{loss}") is str and isinstance(f"{loss}", str)

    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        assert compiled(torch.full((2,), value))
    assert capsys.readouterr().out == "loss 2.00|tensor(1.)|2.0\nloss 4.00|tensor(2.)|4.0\n"
    assert caplog.messages == ["mean 1.0", "mean 2.0"]


def test_warnings_with_texts_of_values_are_issued_in_each_call():
    def program(x):
        warnings.warn(f"mean {x.mean().item():.1f}", stacklevel=1)
        warnings.warn(RuntimeWarning("max %s" % x.max()), stacklevel=1)
        return x

    compiled = thunder.jit(program)
    messages = []
    for value in (1.0, 2.0, 2.0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            compiled(torch.full((2,), value))
        messages.append([(w.category, str(w.message), w.filename) for w in caught])
    assert messages[0] == [
        (UserWarning, "mean 1.0", __file__),
        (RuntimeWarning, "max tensor(1.)", __file__),
    ]
    assert [text for _, text, _ in messages[1]] == ["mean 2.0", "max tensor(2.)"]
    assert thunder.cache_misses(compiled) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="mean 7")
        with pytest.raises(thunder.UnsupportedProgram, match="by which the filters of warnings decide"):
            compiled(torch.ones(2))


def test_text_of_a_tensor_is_refused_after_a_write_to_one():
    def program(x):
        text = f"{x}"
        x.add_(1)
        print(text)

    with pytest.raises(thunder.UnsupportedProgram, match="before the write"):
        thunder.jit(program)(torch.ones(2))


def test_error_with_a_text_of_values_is_eagers():
    def program(x):
        raise ValueError(f"bad {x.sum().item():.1f}")

    with pytest.raises(ValueError, match=r"^bad 2\.0$"):
        thunder.jit(program)(torch.ones(2))


def test_texts_without_tensors_are_made():
    def program(x):
        return "%s %s" % (1, [2]) + "%s" % [1, 2] + "%(a)s" % {"a": 3}, x

    assert thunder.jit(program)(torch.ones(2))[0] == "1 [2][1, 2]3"


def test_a_meta_function_prints_proxies(capsys):
    def meta(x):
        print(x, f"{x} {x!r:>70}")
        return thunder.TensorProxy(like=x)

    executor = OperatorExecutor("printing_ex")
    operator = executor.register_operator("shown", meta=meta, fn=torch.sin)
    thunder.jit(lambda x: operator(x), executors=[executor])(torch.ones(2))
    assert capsys.readouterr().out.count('<TensorProxy(name="t0", dtype=thunder.dtypes.float32') == 3


def test_a_transform_prints_proxies():
    texts = []

    class Shows(thunder.Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            texts.extend(f"{out} {out!s}" for bsym in trace.bound_symbols for out in bsym.flat_proxy_outs)
            return trace

    thunder.jit(lambda x: x.sum().item(), transforms=[Shows()])(torch.ones(2))
    tensor = '<TensorProxy(name="t0", dtype=thunder.dtypes.float32, shape=())>'
    assert texts == [f"{tensor} {tensor}", '<FloatProxy(name="f1")> <FloatProxy(name="f1")>']

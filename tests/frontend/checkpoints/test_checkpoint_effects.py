"""The effects of a checkpointed region: as often as eager has them, and when.

Programs are run by eager and compiled; values, gradients, buffers, attributes, lists, printed lines and their
order must agree after each step.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import io
import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

import thunder

if "__reduce__" not in vars(itertools.count):  # from CPython 3.14 on; the tests copy what they compare
    copyreg.pickle(itertools.count, lambda ids: (itertools.count, (int(repr(ids)[6:-1]),)))


class Effects(nn.Module):
    """Effects before, between and after operators that save tensors."""

    def __init__(self, before=(), between=(), after=(), saves=True, draws=False):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))
        self.calls, self.log, self.by_name = 0, [], {"n": 0}
        self.ids, self.elements = itertools.count(3), iter(range(99))
        self.pairs = zip("abcdefgh", range(8), strict=True)
        self.places = before, between, after
        self.saves, self.draws = saves, draws

    def have(self, kinds, x):
        for kind in kinds:
            if kind == "count":
                self.calls += 1
            elif kind == "append":
                self.log.append(self.calls)
            elif kind == "item":
                self.by_name["n"] += 1
            elif kind == "next":
                self.log += [next(self.ids), next(self.elements), next(self.pairs)]
            elif kind == "print":
                print("region", self.calls)
            elif kind == "buffer":
                self.seen.add_(x.detach().mean(0))
            elif kind == "view":
                self.seen.view(2, 2)[0].mul_(0.5)
            elif kind == "norm":
                x = self.norm(x)
        return x

    def forward(self, x):
        before, between, after = self.places
        x = self.have(before, x)
        x = self.linear(x).tanh() if self.saves else x + 1
        if self.draws:
            x = nn.functional.dropout(x, 0.5)
        x = self.have(between, x)
        x = x.sin() if self.saves else x + 1
        return self.have(after, x) + 1


ALL = ("count", "append", "item", "print", "buffer", "view")
#: name → module
MODULES: dict[str, dict[str, Any]] = {
    "python before": {"before": ("count", "append", "item", "print")},
    "python between": {"between": ("count", "append", "item", "print")},
    "python after": {"after": ("count", "append", "item", "print")},
    "counters before": {"before": ("next",)},
    "counters between": {"between": ("next", "count")},
    "counters after": {"after": ("next",)},
    "buffers before": {"before": ("buffer", "view")},
    "buffers between": {"between": ("buffer", "view")},
    "buffers after": {"after": ("buffer", "view")},
    "norm first": {"before": ("norm",)},
    "norm last": {"after": ("norm",)},
    "norm after random numbers": {"draws": True, "between": ("norm", "buffer")},
    "all of them": {"before": ALL, "between": (*ALL, "norm"), "draws": True},
    "nothing is saved": {"before": ALL, "saves": False},
    "none": {},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"use_reentrant": False},
    "to its end": {"use_reentrant": False, "early_stop": False},
    "without random state": {"use_reentrant": False, "preserve_rng_state": False},
    "reentrant": {"use_reentrant": True},
}


def backward(result, x):
    result.sum().backward()


def backward_twice(result, x):
    result.sum().backward(retain_graph=True)
    result.sum().backward()


def backward_of_two_parts(result, x):
    result[0].sum().backward(retain_graph=True)
    (result[1] * 2).sum().backward()


def no_backward(result, x):
    pass


CALLERS = (backward, backward_twice, backward_of_two_parts, no_backward)


def state_of(module) -> list[Any]:
    state = [t.clone() for t in module.state_dict().values()]
    grads = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    iterators = copy.deepcopy([module.ids, module.elements, module.pairs])
    return [
        *state,
        *grads,
        module.calls,
        list(module.log),
        dict(module.by_name),
        [next(i) for i in iterators],
    ]


def observed(module, program, compile, caller, requires_grad=True) -> list[Any]:
    """What two calls with a backward each show: tensors, Python state, printed lines, the random state."""
    module = copy.deepcopy(module)
    fn = compile(lambda x: program(module, x))
    torch.manual_seed(0)
    seen: list[Any] = []
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for call in range(2):
            x = torch.linspace(-1, 2, 12).view(3, 4).add(call).requires_grad_(requires_grad)
            result = fn(x)
            seen += [result, *state_of(module)]
            out.write("called\n")
            if result.requires_grad:
                caller(result, x)
            seen += [x.grad, *state_of(module), torch.get_rng_state()]
    return [*seen, out.getvalue()]


def assert_same(want, have):
    assert len(want) == len(have)
    for w, h in zip(want, have, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(h, w, rtol=1e-4, atol=1e-6)
        else:
            assert w == h


#: where torch has one part of the effects twice, or draws anew: refused
REFUSED = {
    ("norm after random numbers", "without random state"),
    ("all of them", "without random state"),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", MODULES)
def test_effects_are_had_as_often_as_by_eager(name, options):
    module = Effects(**MODULES[name])
    numbers = list(MODULES).index(name) + list(OPTIONS).index(options)
    caller = CALLERS[numbers % len(CALLERS)]

    def program(module, x):
        return checkpoint(module, x * 2, **OPTIONS[options])

    want = observed(module, program, lambda f: f, caller)
    if (name, options) in REFUSED:
        with pytest.raises(thunder.UnsupportedProgram, match="preserve_rng_state"):
            observed(module, program, thunder.jit, caller)
    else:
        assert_same(want, observed(module, program, thunder.jit, caller))


def again(fn, *args, **kwargs):
    return checkpoint(fn, *args, use_reentrant=False, **kwargs)


def in_a_closure(module, x):
    h, k = x.exp(), 3.0
    return again(lambda y: module(y) * h * k, x * 2)


def with_several_results(module, x):
    first, _ = again(lambda y: (module(y), (y * 0).log()), x * 2)
    return first


def with_keywords(module, x):
    def region(y, *, z, options):
        options["n"] = 1
        return module(y) * z

    return again(region, x * 2, z=x, options={})


def to_its_end_by_the_setting(module, x):
    with set_checkpoint_early_stop(False):
        return again(module, x * 2)


def under_no_grad_inside(module, x):
    def region(y):
        with torch.no_grad():
            module.seen.add_(y.mean(0))
            module.calls += 1
        return y.sin()

    return again(region, x * 2)


def under_autocast(module, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return again(lambda y: module.linear(module.norm(y)), x * 2).float()


def in_a_sequence(module, x):
    layers = nn.Sequential(module.linear, module.norm, nn.ReLU(), module.linear)
    return checkpoint_sequential(layers, 2, x * 2, use_reentrant=False)


def in_a_reentrant_sequence(module, x):
    layers = [module.linear, module.norm, nn.ReLU(), module.linear]
    return checkpoint_sequential(layers, 2, x * 2, use_reentrant=True)


def around_a_region(module, x):
    return again(lambda y: module(again(torch.sin, y)) * 2, x * 2)


def under_no_grad(module, x):
    with torch.no_grad():
        return again(module, x * 2)


def reentrant_without_gradient(module, x):
    return checkpoint(module, x.detach(), use_reentrant=True)


def reentrant_of_several(module, x):
    return checkpoint(lambda a, b, n: (module(a) * n, b * 2), x * 2, x * 3, 2.0, use_reentrant=True)[0]


def as_it_is_called_without_an_option(module, x):
    return checkpoint(module, x * 2)


class Printing(Function):
    @staticmethod
    def forward(ctx, x, module):
        print("forward", module.calls)
        module.calls += 1
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2, None


class PrintingBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        ctx.times = getattr(ctx, "times", 0) + 1
        print("backward", ctx.times)
        return g * x * 2


def around_a_function(module, x):
    return again(lambda y: Printing.apply(y, module) + 1, x * 2)


def around_a_function_whose_backward_prints(module, x):
    return again(lambda y: PrintingBackward.apply(y).sin(), x * 2)


def assigned_again(module, x):
    for i in range(2, 4):
        x = again(lambda y: module(y) * i, x)  # noqa: B023
    return x


PROGRAMS = (
    *(around_a_function, around_a_function_whose_backward_prints),
    *(in_a_closure, with_several_results, with_keywords, to_its_end_by_the_setting, under_no_grad_inside),
    *(under_autocast, in_a_sequence, in_a_reentrant_sequence, around_a_region, under_no_grad),
    *(reentrant_without_gradient, reentrant_of_several, as_it_is_called_without_an_option, assigned_again),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_regions_with_effects_in_other_programs(program):
    module = Effects(before=("count", "print"), between=("norm", "append"))
    for requires_grad in (True, False) if program in (in_a_closure, in_a_sequence) else (True,):
        want = observed(module, program, lambda f: f, backward_twice, requires_grad)
        assert_same(want, observed(module, program, thunder.jit, backward_twice, requires_grad))


def test_a_region_without_effects_is_not_run_again():
    compiled = thunder.jit(lambda x: again(torch.sin, x))
    compiled(torch.ones(3, requires_grad=True)).sum().backward()
    assert "run_region_again" not in str(thunder.last_backward_traces(compiled)[0])


def test_a_setting_that_has_changed_compiles_again():
    module = Effects(after=("count",))
    compiled = thunder.jit(lambda x: again(module, x))
    for stop, calls in ((True, 1), (False, 3)):
        with set_checkpoint_early_stop(stop):
            compiled(torch.ones(3, 4, requires_grad=True)).sum().backward()
        assert module.calls == calls


# -- reentrant regions ---------------------------------------------------------------------------------------


def block(x):
    return x.sin() * x


def test_a_reentrant_region_refuses_grad_as_in_eager():
    texts = []
    for wrap in (lambda f: f, thunder.jit):
        x = torch.ones(3, requires_grad=True)
        result = wrap(lambda x: checkpoint(block, x, use_reentrant=True))(x)
        with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)") as caught:
            torch.autograd.grad(result.sum(), x)
        texts.append(str(caught.value).splitlines()[0])
    assert texts[0] == texts[1]


def test_a_reentrant_region_has_no_second_derivative():
    x = torch.ones(3, requires_grad=True)
    result = thunder.jit(lambda x: checkpoint(block, x, use_reentrant=True))(x)
    with pytest.raises(thunder.MissingGradient, match="reentrant_gradient"):
        result.sum().backward(create_graph=True)


def warnings_of(fn) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fn()
    return [str(w.message) for w in caught if w.category is UserWarning]


@pytest.mark.parametrize("options", [{}, {"use_reentrant": True}])
def test_warnings_of_the_first_call_are_eagers(options):
    def program(x):
        return checkpoint(block, x, **options)

    x = torch.ones(3)
    want = warnings_of(lambda: program(x))
    assert warnings_of(lambda: thunder.jit(program)(x)) == want
    assert want


@pytest.mark.parametrize("options", [{"k": 1}, {"debug": True}, {"respect_saved_tensors_hooks": True}])
def test_a_wrong_option_raises_as_eager(options):
    texts = []
    for wrap in (lambda f: f, thunder.jit):
        fn = wrap(lambda x: checkpoint(block, x, use_reentrant=True, **options))
        with pytest.raises(ValueError, match=r"keyword|debug") as caught:
            fn(torch.ones(3))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


# -- refused -------------------------------------------------------------------------------------------------


def before_and_after(module, x):
    return again(module, x)


def nested(module, x):
    return again(lambda y: again(module, y) * 2, x * 2)


def writes_to_a_value(module, x):
    def region(y):
        module.calls += 1
        return y.add_(1).sin()

    return again(region, x * 2)


def around_effects_of_both(module, x):
    return again(lambda y: PrintingBackward.apply(module(y)).sin(), x * 2)


def captures_an_intermediate(module, x):
    h = x * 2
    return checkpoint(lambda y: y * h, x, use_reentrant=True)


def returns_its_argument(module, x):
    return checkpoint(lambda y: y, x * 2, use_reentrant=True)


def returns_a_list(module, x):
    return checkpoint(lambda y: [y * 2], x, use_reentrant=True)[0]


def does_not_depend(module, x):
    return checkpoint(lambda y: torch.ones(3), x, use_reentrant=True)


def asks_for_the_grad_mode(module, x):
    return checkpoint(lambda y: y * (2 if torch.is_grad_enabled() else 3), x, use_reentrant=True)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (asks_for_the_grad_mode, "reads whether gradients are on"),
        (before_and_after, "repeats its first effects, and not those after the last"),
        (nested, "inside of another"),
        (writes_to_a_value, "writes in place to a tensor that is not its own"),
        (around_effects_of_both, "around a function whose backward reads state or has effects"),
        (captures_an_intermediate, "a tensor with a history that is not an argument"),
        (returns_its_argument, "depends on no argument, or is one"),
        (returns_a_list, "results in containers"),
        (does_not_depend, "depends on no argument, or is one"),
    ],
)
def test_what_cannot_be_repeated_is_refused_by_name(program, words):
    module = Effects(before=("count",), after=("count",) if program is before_and_after else ())
    with pytest.raises(thunder.UnsupportedProgram) as caught:
        thunder.jit(lambda x: program(module, x))(torch.ones(3, 4, requires_grad=True))
    assert words in str(caught.value)
    assert "test_checkpoint_effects.py" in str(caught.value)


# -- differences from eager ---------------------------------------------------------------------------------


def test_the_gradient_of_a_region_is_that_of_its_first_run():
    module = Effects()

    def region(y):
        module.calls += 1
        return (y * module.calls).sin()

    x = torch.ones(3, requires_grad=True)
    thunder.jit(lambda x: again(region, x))(x).sum().backward()
    assert torch.allclose(x.grad, torch.ones(3).cos())
    assert module.calls == 2


def test_a_second_derivative_has_no_effects():
    module = Effects(before=("count",))
    x = torch.ones(3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(thunder.jit(lambda x: again(module, x))(x).sum(), x, create_graph=True)
    torch.autograd.grad(gradient.sum(), x)
    assert module.calls == 2

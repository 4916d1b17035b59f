"""Sizes that depend on data are found by the computation: one program for all of them, with its checks."""

import random
import re

import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.data_steps import DATA_STEPS, random_data, random_data_program
from symbolic.shape_programs import STEPS
from symbolic.shape_steps import STEPS as FURTHER
from symbolic.static_reasons import failure_of
from symbolic.test_random_shape_programs import _assert_same, _outcome
from thunder.base.errors import DecisionChanged
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import new_size

MODES = ("symbolic values", "automatic")


def _with_positives(count, length=8):
    return torch.arange(float(length)) - (length - count) + 0.5


def _compiled(program, mode="symbolic values", **options):
    return thunder.jit(program, cache=mode, executors=[], **options)


def _assert_eagers(program, compiled, *arguments):
    torch.testing.assert_close(compiled(*arguments), program(*arguments), rtol=0, atol=0, check_stride=True)


# -- random programs -----------------------------------------------------------------------------------------


def _assert_random_program_is_eagers(seed, others, calls=10):
    rng = random.Random(seed)
    program, names = random_data_program(rng, others)
    compiled = _compiled(program, rng.choice(MODES), recompile_limit=None)
    shapes = [[rng.randint(2, 6) for _ in range(rng.randint(1, 2))], [4]]
    data = [[random_data(rng, shape) for shape in shapes] for _ in range(calls)]
    outcomes = []
    for call in data:
        ours, theirs = ([t.clone().requires_grad_() for t in call] for _ in range(2))
        expected, gradients = _outcome(program, theirs)
        actual, computed = _outcome(compiled, ours)
        description = f"{seed} {names} {shapes}"
        assert (computed is None) == (gradients is None), f"{description} {actual} {expected}"
        outcomes.append(expected if gradients is not None else None)
        if gradients is None or computed is None:
            continue
        _assert_same(actual, expected, description)
        for a, e in zip(computed, gradients, strict=True):
            torch.testing.assert_close(
                a, e, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda text, d=description: f"{text} {d}"
            )
    stats = thunder.compile_stats(compiled)
    raises = None in outcomes  # then the reason is the program's error
    assert raises or failure_of(compiled) is None, f"{names} {failure_of(compiled)}"
    _assert_each_entry_is_right_or_left(stats.interpreter_cache, data, outcomes, names)


def _assert_each_entry_is_right_or_left(entries, data, outcomes, names):
    """Run each entry whose guards hold on the data of each call."""
    for entry in entries:
        for call, expected in zip(data, outcomes, strict=True):
            arguments = [t.clone().requires_grad_() for t in call]
            inputs = entry.prologue_fn(*arguments)
            if inputs is None or expected is None:
                continue
            try:
                result = entry.computation_fn(*inputs[0])
            except DecisionChanged:
                continue
            if entry.epilogue_fn is not None:
                result = entry.epilogue_fn(*result, *inputs[1])
            _assert_same(result, expected, names)


@pytest.mark.parametrize("seed", one_in(100, range(1000)))
def test_a_random_program_computes_what_eager_computes(seed):
    _assert_random_program_is_eagers(seed, STEPS)


@pytest.mark.parametrize("seed", [2051, *one_in(100, range(3000, 3100), 50)])
def test_a_random_program_of_views_and_windows_computes_what_eager_computes(seed):
    _assert_random_program_is_eagers(seed, {**STEPS, **FURTHER})


@pytest.mark.parametrize("name", DATA_STEPS)
@pytest.mark.parametrize("mode", MODES)
def test_a_straight_line_is_one_program_for_all_sizes_but_few(name, mode):
    step = DATA_STEPS[name]

    def program(x, y):
        return step(x, y).sin() * 2

    compiled = _compiled(program, mode)
    y = torch.ones(3, dtype=torch.float64)
    for count in (5, 3, 7, 2, 6, 4, 1, 0, 8, 5):
        x = _with_positives(count).double().reshape(-1, 1) * torch.ones(2, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, y), program(x, y), equal_nan=True)
    # with the first of the automatic mode; 0, 1 and 8, which is all, may be programs of their own
    assert thunder.cache_misses(compiled) <= 4 + (mode == "automatic")
    assert failure_of(compiled) is None


# -- what a trace has ----------------------------------------------------------------------------------------


def test_the_statement_has_the_size_as_a_result_and_checks_follow_it():
    def program(x):
        y = x[x > 0]
        return y[2:] if y.shape[0] > 2 else y

    compiled = _compiled(program)
    for count in (4, 6, 3, 8):
        _assert_eagers(program, compiled, _with_positives(count))
    assert thunder.cache_misses(compiled) == 1
    text = str(thunder.last_traces(compiled)[-1])
    call = r'\((t\d+), (u\d+)\) = torch_nonzero_with_size\w*\(.*\)  # \1: "cpu i64\[\2, 1\]", \2: "int 4"'
    found = re.search(
        call
        + r"(?:\n\s+#.*|\n\s+del .*)*\n\s+check_decision\(\2, 3, question='>=', answer=True, index=None\)",
        text,
    )
    assert found is not None, text
    assert f"{__file__}:" in text[: found.start()]
    _assert_eagers(program, compiled, _with_positives(1))
    assert thunder.cache_misses(compiled) == 2


def test_the_text_of_a_trace_runs_for_other_sizes_and_leaves_where_a_check_fails():
    compiled = _compiled(lambda x: x[x > 0].reshape(2, -1).sum(0))
    x = _with_positives(4)
    compiled(x)
    trace = thunder.last_traces(compiled)[-1]
    context = trace.python_ctx()
    exec(str(trace), context)
    for count in (2, 4, 6, 8):
        x = _with_positives(count)
        result = context["computation"](x, 8)
        assert torch.equal(torch.utils._pytree.tree_leaves(result)[0], x[x > 0].reshape(2, -1).sum(0))
    with pytest.raises(DecisionChanged, match="1 == 0"):
        context["computation"](_with_positives(3), 8)


def test_each_check_alone_lets_a_call_leave():
    def program(x):
        y, z = x[x > 0], x[x > 2]
        y = y.reshape(2, -1) if y.shape[0] % 2 == 0 else y
        return (y * 2, z[1:]) if z.shape[0] > 1 and y.shape[0] != z.shape[0] else z

    compiled = _compiled(program)
    compiled(_with_positives(6))
    trace = thunder.last_traces(compiled)[-1]
    text = str(trace)
    lines = [line for line in text.split("\n") if line.strip().startswith("check_decision(")]
    assert len(lines) >= 3
    negated = {">=": "<", "==": "!=", "!=": "=="}
    for line in lines:
        (relation,) = re.findall(r"'(>=|==|!=)'", line)
        changed = text.replace(line, line.replace(f"'{relation}'", f"'{negated[relation]}'"))
        context = trace.python_ctx()
        exec(changed, context)
        with pytest.raises(DecisionChanged, match=r"None, '\d"):
            context["computation"](_with_positives(6), 8)


def test_a_size_and_a_number_of_it_are_results():
    def program(x):
        positions = x.nonzero()
        return positions.shape, positions.shape[0] * 2, positions.numel()

    compiled = _compiled(program)
    for count in (3, 5, 1, 0):
        x = (_with_positives(count) > 0).float()
        assert compiled(x) == program(x)
    assert type(compiled(x)[1]) is int


# -- the automatic mode --------------------------------------------------------------------------------------


def test_a_loop_over_sizes_costs_two_compiles():
    def program(x):
        y = x[x > 0]
        return (y * y).cumsum(0)

    compiled = _compiled(program, "automatic")
    for count in (3, 5, 2, 7, 4, 6, 8):
        _assert_eagers(program, compiled, _with_positives(count))
    assert thunder.cache_misses(compiled) == 2
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert re.search(r"symbolic from now on: nonzero at .*test_computed_sizes.py:\d+", str(reason))


def test_all_later_sizes_are_found_where_an_earlier_one_differs():
    def program(x, n):
        y = x[x > 0]
        z = torch.unique(y.round())
        return y.sum() + z.sum() + torch.arange(n.item()).sum()

    compiled = _compiled(program, "automatic")
    for count in (3, 5, 2, 7, 4, 6):
        _assert_eagers(program, compiled, _with_positives(count), torch.tensor(count + 2))
    assert thunder.cache_misses(compiled) == 2


def test_constant_values_leave_sizes_to_decisions():
    compiled = _compiled(lambda x: x[x > 0] * 2, "constant values")
    for count in (3, 5, 3, 5, 2):
        x = _with_positives(count)
        assert torch.equal(compiled(x), x[x > 0] * 2)
    assert thunder.cache_misses(compiled) == 3


def test_a_size_that_the_program_needs_is_a_decision_again():
    def program(x):
        total = x.new_zeros(())
        for i in range(x.nonzero().shape[0]):
            total = total + x[i] * i
        return total

    compiled = _compiled(program, "automatic", recompile_limit=None)
    for count in (3, 5, 2, 4, 3, 5, 2, 6):
        _assert_eagers(program, compiled, (_with_positives(count) > 0) * _with_positives(count))
    text = str(thunder.last_traces(compiled)[0])
    assert "nonzero_with_size" not in text
    assert "decision=0" in text
    misses = thunder.cache_misses(compiled)
    for count in (3, 5, 2, 4, 6):
        _assert_eagers(program, compiled, (_with_positives(count) > 0) * _with_positives(count))
    assert thunder.cache_misses(compiled) == misses


@pytest.mark.parametrize("mode", MODES)
def test_each_side_of_a_branch_on_a_size_is_a_program(mode):
    def program(x):
        y = x[x > 0]
        if y.shape[0] > 4:
            return y.sin()
        return y.cos().sum()

    compiled = _compiled(program, mode)
    for count in (3, 5, 2, 7, 4, 6, 3):
        _assert_eagers(program, compiled, _with_positives(count))
    assert thunder.cache_misses(compiled) == (2 if mode == "symbolic values" else 3)


def test_decisions_beside_sizes_take_their_own_entries():
    def program(x, flag):
        y = x[x > 0]
        if flag.any():
            y = y * 2
        if y.shape[0] > 4 and (y > 6).any():
            y = y - 1
        return y.sum()

    compiled = _compiled(program, "automatic", recompile_limit=None)
    rng = random.Random(3)
    for _ in range(60):
        x, flag = _with_positives(rng.randint(0, 8)), torch.tensor([rng.random() < 0.5])
        _assert_eagers(program, compiled, x * rng.choice([0.5, 1.0]), flag)
    assert thunder.compile_stats(compiled).runs_by_python == 0
    assert thunder.cache_misses(compiled) <= 14


def test_a_call_leaves_before_a_write_and_draws_the_same_numbers():
    def program(x, state):
        state += torch.rand(1)
        y = x[x > 0]
        return y * state if y.shape[0] > 3 else y - state

    compiled, ours, theirs = _compiled(program), torch.zeros(1), torch.zeros(1)
    for count in (5, 2, 6, 1, 4):
        x = _with_positives(count)
        torch.manual_seed(count)
        expected = program(x, theirs)
        torch.manual_seed(count)
        assert torch.equal(compiled(x, ours), expected)
        assert torch.equal(ours, theirs)


def test_a_program_with_too_many_sizes_is_run_by_python():
    def program(x):
        return x[x > 0] * list(range(10))[x.nonzero().shape[0]] + (x > 0).sum().item()

    compiled = _compiled(program, recompile_limit=2)
    inputs = [_with_positives(count).relu() for count in range(8)]
    with pytest.warns(thunder.RecompileWarning, match="Python runs it"):
        torch.testing.assert_close([compiled(x) for x in inputs], [program(x) for x in inputs])
    assert thunder.cache_misses(compiled) == 3


# -- torch._check --------------------------------------------------------------------------------------------


def test_a_check_of_the_program_is_a_fact_that_answers_later_questions():
    def program(x):
        n = (x > 0).sum().item()
        y = x.new_ones(n)
        torch._check(y.shape[0] < 6)
        return y * 3 if y.shape[0] < 8 else y

    compiled = _compiled(program)
    for count in (3, 5, 2, 4):
        _assert_eagers(program, compiled, _with_positives(count))
    assert thunder.cache_misses(compiled) == 1
    checks = re.findall(r"check_decision\(.*\)", str(thunder.last_traces(compiled)[-1]))
    assert any("5" in check for check in checks)
    assert not any("7" in check or "8" in check for check in checks)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(_with_positives(7))
    _assert_eagers(program, compiled, _with_positives(5))


# -- gradients -----------------------------------------------------------------------------------------------


def test_a_backward_has_the_sizes_of_its_own_forward():
    def program(x, w):
        y = x[x > 0]
        return (y * w).mean() + y.new_ones(y.shape[0]).cumsum(0) @ y.exp()

    compiled = _compiled(program)
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    pending = []
    for count in (3, 6, 2, 5):
        x = (_with_positives(count) / 10).double().requires_grad_()
        pending.append((x, compiled(x, w)))
    assert thunder.cache_misses(compiled) == 1
    for x, result in reversed(pending):
        ours = torch.autograd.grad(result, (x, w))
        expected = torch.autograd.grad(program(x, w), (x, w))
        torch.testing.assert_close(ours, expected)
        torch.autograd.gradcheck(lambda t: compiled(t, w), (x.detach().requires_grad_(),))


def read_through_a_mask(x):
    return (x[x > 0.1].sin() * x.sum()).sum()


def written_through_masks(x):
    y, mask = x.clone(), x > 0.1
    y[mask] = y[mask] * 2 + 1
    y = y.sin()
    y[~mask] = y[~mask] * y[~mask]
    return (y**3).sum()


@pytest.mark.parametrize("program", [read_through_a_mask, written_through_masks])
def test_second_derivatives_through_masks_are_eagers(program):
    compiled = _compiled(program)
    for count in (5, 3, 6):
        x = (_with_positives(count) / 5).double().reshape(4, 2).requires_grad_()
        first = [torch.autograd.grad(f(x), x, create_graph=True)[0] for f in (compiled, program)]
        ours, theirs = (torch.autograd.grad((d * d).sum(), x)[0] for d in first)
        torch.testing.assert_close(ours, theirs)
    assert thunder.cache_misses(compiled) == 1


# -- facts ---------------------------------------------------------------------------------------------------


def _sizes(**hints):
    facts = SizeFacts()
    sizes = [new_size(facts, hint, name, computed=name.startswith("u")) for name, hint in hints.items()]
    for size, name in zip(sizes, hints, strict=True):
        size.name = name
    return facts, sizes


def _texts(facts, found):
    return [fact.text(facts.names.__getitem__) for fact in found]


def test_nothing_about_an_earlier_size_follows_from_a_fact_about_a_later_one():
    facts, (u, later, i) = _sizes(u=4, u1=4, i=4)
    assert later >= 3
    assert later == i
    assert i >= 3
    assert later == u
    assert u >= 2
    # facts about `i` are in the prologue, and those about `u` right after it, though `u1` implies them
    assert _texts(facts, facts.checked()) == ["i >= 3"]
    inside = facts.checked_inside()
    assert _texts(facts, inside[u.variable]) == ["i == u"]
    assert _texts(facts, inside[later.variable]) == ["u1 >= 3", "u1 == i"]


def test_an_equality_never_replaces_an_input_by_a_size_that_is_found_later():
    facts, (i, u) = _sizes(i=7, u=4)
    assert i == u + 3
    assert u - 4 == 0
    assert i % 7 == 0
    assert all("u" not in text for text in _texts(facts, facts.checked()))
    assert facts.known(Polynomial.variable(u.variable)) == 4 or not facts.checked()


def test_a_divisor_is_checked_before_what_is_divided_by_it():
    facts, (i, u) = _sizes(i=6, u=3)
    assert i % u == 0
    assert u >= 3
    (texts,) = [_texts(facts, found) for found in facts.checked_inside().values()]
    assert texts.index("u >= 3") < texts.index("(i % u) == 0")


def test_after_its_checks_are_written_no_fact_about_a_computed_size_is_noted():
    facts, (i, u) = _sizes(i=6, u=3)
    facts.complete_computed()
    assert i > 2
    with pytest.raises(thunder.UnsupportedProgram, match="after the program was compiled"):
        u > 2  # noqa: B015

"""Under ``cache="automatic"`` the sizes that have differed between calls are inputs of the program."""

import pytest
import torch
import torch.nn.functional as F

import thunder
from symbolic.static_reasons import failure_of
from thunder.core.errors import InternalError
from thunder.extend import FusionExecutor, evaluate_region
from thunder.ir.size_facts import SizeFacts

R = torch.randn


def _compiled(fn, **options):
    return thunder.jit(fn, cache="automatic", executors=["torch"], **options)


def test_it_is_the_default_and_an_option_turns_it_off():
    for options, most in (({}, 2), ({"cache": "automatic"}, 2), ({"cache": "constant values"}, 10)):
        compiled = thunder.jit(lambda x, n: x.softmax(-1) * n, recompile_limit=None, **options)
        for length in range(3, 13):
            x = R(2, length)
            torch.testing.assert_close(compiled(x, length), x.softmax(-1) * length)
        assert thunder.cache_misses(compiled) == most


def _types(compiled):
    return [
        {p.name: p.type_string() for p in entry.computation_traces[-1].args}
        for entry in thunder.compile_stats(compiled).interpreter_cache
    ]


class _Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(6), torch.nn.Linear(6, 12), torch.nn.Linear(12, 6)

    def forward(self, x):
        y = x + F.scaled_dot_product_attention(x, x, x)
        return y + self.down(F.gelu(self.up(self.norm(y))))


def test_a_loop_over_ten_lengths_costs_two_compiles():
    module = _Block()
    compiled = _compiled(module)
    for length in range(3, 13):
        x = R(2, length, 6, requires_grad=True)
        y = x.detach().requires_grad_()
        compiled(x).square().sum().backward()
        gradients = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        module(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
        for p, gradient in zip(module.parameters(), gradients, strict=True):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-5)
        module.zero_grad()
    assert thunder.cache_misses(compiled) == 2
    assert [t["x"] for t in _types(compiled)] == ["cpu f32[2, 3, 6]", "cpu f32[2, i0, 6]"]


def test_the_reason_names_the_sizes_that_are_symbolic_from_now_on():
    compiled = _compiled(lambda x, y: (x * 2).sum() + y.sum())
    compiled(R(3, 4), R(5))
    assert thunder.last_recompile_reasons(compiled) == []
    compiled(R(6, 4), R(7))
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert reason.now_free == ("args[0].shape[0]", "args[1].shape[0]")
    assert str(reason).endswith("symbolic from now on: args[0].shape[0], args[1].shape[0]")
    compiled(R(6, 4).double(), R(7))
    of_each_entry = [reason.now_free for reason in thunder.last_recompile_reasons(compiled)]
    assert of_each_entry == [(), ()]


def test_sizes_of_several_arguments_become_free_at_once():
    def program(batch, *, scale):
        return batch["x"] @ batch["y"].transpose(0, 1) * scale

    compiled = _compiled(program)
    for n, m in ((3, 4), (5, 6), (7, 2), (2, 9)):
        batch, scale = {"x": R(n, 5), "y": R(m, 5)}, R(m)
        torch.testing.assert_close(compiled(batch, scale=scale), program(batch, scale=scale))
    assert thunder.cache_misses(compiled) == 2


def test_a_dimension_that_varies_later_costs_one_more_compile():
    compiled = _compiled(lambda x: x * 2)
    for shape in ((3, 4), (5, 4), (6, 4), (6, 7), (8, 9), (1, 1), (0, 3)):
        x = R(shape)
        assert torch.equal(compiled(x), x * 2)
    assert thunder.cache_misses(compiled) == 3


def test_another_number_of_dimensions_and_another_dtype_are_other_programs():
    compiled = _compiled(lambda x: x.sum(0))
    for x in (R(3, 4), R(3), R(3, 4).double(), R(5).double(), R(2, 4), R(7), R(9, 4).double()):
        torch.testing.assert_close(compiled(x), x.sum(0))
    assert [next(iter(t.values())) for t in _types(compiled)] == [
        "cpu f32[3, 4]",
        "cpu f32[3]",
        "cpu f64[3, 4]",
        "cpu f64[5]",
        "cpu f32[i0, 4]",
        "cpu f32[i0]",
        "cpu f64[i0, 4]",
    ]


def _loop(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def test_a_size_that_the_program_needs_is_a_number_again():
    compiled = _compiled(_loop, recompile_limit=None)
    for length in (2, 3, 4, 5, 6, 3):
        x = R(length, 2)
        torch.testing.assert_close(compiled(x), _loop(x))
    assert thunder.cache_misses(compiled) == 5
    assert [t["x"] for t in _types(compiled)] == [
        "cpu f32[2, 2]",
        "cpu f32[i0, 2]",
        "cpu f32[i0, 2]",
        "cpu f32[5, 2]",
        "cpu f32[6, 2]",
    ]
    (*_, reason) = thunder.last_recompile_reasons(compiled)
    assert reason.now_free == ()


class _NumbersOnly(thunder.Transform):
    """A transform that takes shapes as numbers of Python."""

    def __init__(self):
        self.symbolic = 0

    def transform_trace_pre_execution(self, trace, **kwargs):
        for x in trace.args:
            if not all(type(n) is int for n in getattr(x, "shape", ())):
                self.symbolic += 1
                raise TypeError("shapes are numbers")
        return trace


def test_a_program_that_fails_with_symbols_is_compiled_for_each_size_and_not_tried_again():
    transform = _NumbersOnly()
    compiled = _compiled(lambda x: x * 2, transforms=[transform])
    for length in (2, 3, 4, 5):
        x = R(length)
        assert torch.equal(compiled(x), x * 2)
    assert (thunder.cache_misses(compiled), transform.symbolic) == (4, 1)
    assert "shapes are numbers" in str(thunder.compile_stats(compiled).last_static_reason)


class _FusingNumbers(FusionExecutor):
    """An executor of regions whose sizes are numbers."""

    def compile_region(self, region):
        assert all(type(n) is int for p in region.inputs for n in p.shape)
        return lambda *tensors: evaluate_region(region, tensors)


def test_a_program_with_few_lengths_keeps_the_regions_that_are_for_numbers():
    ex = _FusingNumbers("acme_numbers")
    for name in ("torch.sin", "torch.cos"):
        ex.register_supported(name)
    compiled = thunder.jit(lambda x: x.sin().cos(), executors=[ex, "torch"], recompile_limit=None)
    for length in range(2, 12):
        x = R(length, 3)
        torch.testing.assert_close(compiled(x), x.sin().cos())
    kinds = [next(iter(t.values())) for t in _types(compiled)]
    assert kinds == [f"cpu f32[{n}, 3]" for n in range(2, 8)] + ["cpu f32[i0, 3]"]
    assert "acme_numbers" in str(thunder.compile_stats(compiled).last_static_reason)
    assert thunder.cache_misses(compiled) == 7


def test_an_executor_for_numbers_that_would_run_no_call_changes_nothing():
    ex = _FusingNumbers("acme_elsewhere")
    ex.register_supported("torch.sin", checker=lambda x: x.shape[0] == 1000)
    compiled = thunder.jit(lambda x: x.sin().cos(), executors=[ex, "torch"])
    for length in (3, 4, 5):
        compiled(R(length))
    assert thunder.cache_misses(compiled) == 2
    (entry,) = thunder.compile_stats(compiled).interpreter_cache[1:]
    assert not [fact for fact in entry.guards if fact.sym.name == "check_sizes"], (
        "what was asked is forgotten"
    )


def test_parameters_buffers_and_globals_have_numbers_as_sizes():
    module = torch.nn.Linear(3, 2)
    compiled = _compiled(module)
    for rows in (2, 4):
        module.weight = torch.nn.Parameter(R(rows, 3))
        module.bias = torch.nn.Parameter(R(rows))
        x = R(5, 3)
        torch.testing.assert_close(compiled(x), module(x))
    assert thunder.cache_misses(compiled) == 2
    assert _types(compiled)[-1]["t_weight"] == "cpu f32[4, 3]"


def test_a_wish_comes_before_what_the_calls_show():
    compiled = _compiled(_loop, dynamic_sizes={"x": 1})
    for shape in ((3, 4), (3, 5), (4, 5), (4, 7)):
        x = R(shape)
        torch.testing.assert_close(compiled(x), _loop(x))
    assert thunder.cache_misses(compiled) == 2
    with pytest.raises(thunder.UnsupportedProgram, match="was asked to stay free"):
        _compiled(_loop, dynamic_sizes={"x": 0})(R(3, 4))


def test_with_constant_values_each_size_is_a_program():
    compiled = thunder.jit(lambda x: x * 2, executors=["torch"], cache="constant values")
    for length in (2, 3, 4):
        compiled(R(length))
    assert thunder.cache_misses(compiled) == 3


def _answered(x):
    last = torch.arange(x.shape[0]).max()
    return x * (2 if int(last) == 5 else 3), last.item()


def test_an_entry_for_numbers_serves_calls_with_other_answers():
    compiled = _compiled(_answered)
    for length in (5, 6, 5, 7, 6):
        x = R(length)
        torch.testing.assert_close(compiled(x), _answered(x))
    assert thunder.cache_misses(compiled) == 3
    entries = thunder.compile_stats(compiled).interpreter_cache
    assert sorted(len(e.decisions) for e in entries) == [0, 1, 1]


def test_facts_after_one_that_differs_in_more_than_sizes_are_not_looked_at():
    class Holder:
        def __init__(self, tensor):
            self.tensor = tensor

    class Raising:
        @property
        def tensor(self):
            raise LookupError("nothing is here")

    compiled = _compiled(lambda x, holder: x * 2 if type(holder) is Raising else x.sum() + holder.tensor)
    for x, holder in ((R(3), Holder(R(4))), (R(5), Raising()), (R(6), Raising()), (R(7), Holder(R(4)))):
        compiled(x, holder)
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_tensor_of_another_layout_may_come_after_one_of_a_subclass():
    class Plain(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    compiled = _compiled(lambda x: x * 2)
    compiled(R(3, 4).as_subclass(Plain))
    x = R(3, 5)
    found = compiled(x.to_sparse_csr())
    assert found.layout is torch.sparse_csr
    assert torch.equal(found.to_dense(), x * 2)


def test_torch_judges_the_arguments_of_an_operator_on_a_tensor_with_symbolic_sizes():
    compiled = thunder.jit(lambda x: torch.pow(x, 3.0) + torch.pow(2.0, x), cache="symbolic values")
    for length in (2, 5):
        x = R(length)
        torch.testing.assert_close(compiled(x), x**3.0 + 2.0**x)
    assert failure_of(compiled) is None
    assert thunder.cache_misses(compiled) == 1


def _attended(x, cache):
    """Attention of new rows to these and to those of earlier calls, which a cache keeps."""
    rows = torch.cat([cache["rows"], x], dim=1) if cache else x
    cache["rows"] = rows
    return F.scaled_dot_product_attention(x, rows, rows)


def test_a_cache_that_grows_costs_two_compiles():
    compiled, ours, eagers = _compiled(_attended), {}, {}
    for length in (5, 1, 1, 1, 3, 1):
        x = R(2, length, 4)
        torch.testing.assert_close(compiled(x, ours), _attended(x, eagers))
    assert _types(compiled)[1:] == [
        {"x": "cpu f32[2, i0, 4]", "t_rows": "cpu f32[2, i1, 4]", "i0": "int 1", "i1": "int 5"}
    ]
    assert torch.equal(ours["rows"], eagers["rows"])


class _NumbersOfRows(_NumbersOnly):
    """A transform that takes the shape of a cache's rows as numbers of Python."""

    def transform_trace_pre_execution(self, trace, **kwargs):
        if any("rows" in x.name and type(x.shape[1]) is not int for x in trace.args if hasattr(x, "shape")):
            self.symbolic += 1
            raise TypeError("the number of rows is a number")
        return trace


def test_a_size_that_only_probably_varies_is_a_number_where_the_program_fails_with_it():
    transform = _NumbersOfRows()
    compiled, ours, eagers = _compiled(_attended, transforms=[transform]), {}, {}
    for length in (5, 1, 3, 1, 1):
        x = R(2, length, 4)
        torch.testing.assert_close(compiled(x, ours), _attended(x, eagers))
        if length == 1 and len(_types(compiled)) == 2:
            assert (_types(compiled)[1]["x"], transform.symbolic) == ("cpu f32[2, i0, 4]", 1)
    assert [t["t_rows"] for t in _types(compiled)[1:]] == [f"cpu f32[2, {n}, 4]" for n in (5, 6, 9, 10)]
    assert transform.symbolic == 2, "once as a size that probably varies, once as one that has differed"


@pytest.mark.parametrize("error", [InternalError("a fault"), KeyError("a fault"), AssertionError("a fault")])
def test_a_fault_of_thunder_in_a_compile_with_symbols_reaches_the_user(monkeypatch, error):
    compiled = _compiled(lambda x: x * 2)
    compiled(R(3))
    check_sizes = SizeFacts.complete

    def broken(facts):
        check_sizes(facts)
        raise error

    monkeypatch.setattr(SizeFacts, "complete", broken)
    with pytest.raises(type(error), match="a fault"):
        compiled(R(4))


@pytest.mark.parametrize("name", ["text", "rows", "key"])
def test_the_line_that_needs_a_size_is_the_reason(name):
    program = {
        "text": lambda x: (x * 2, len(f"{x.shape[0]} rows")),
        "rows": lambda x: sum(x),
        "key": lambda x: x * {3: 1, 4: 2}.get(x.shape[0], 3),
    }[name]
    compiled = _compiled(program)
    for length in (3, 4):
        compiled(R(length))
    reason = thunder.compile_stats(compiled).last_static_reason
    assert "the program needs the value of args[0].shape[0], 4" in str(reason)
    assert f'"{name}": ' in str(reason)


class _Layer:
    """A part of a cache that is made in the first call, and counts what it has seen."""

    def __init__(self) -> None:
        self.is_made, self.count = False, 0


def _counted(x, layers):
    for layer in layers:
        if not layer.is_made:
            layer.is_made = True
        layer.count += x.shape[0]
        x = x + layer.count
    return x


def test_counters_of_all_layers_vary_though_the_first_call_has_made_the_layers():
    compiled = _compiled(_counted)
    ours, eagers = ([_Layer() for _ in range(3)] for _ in range(2))
    for length in (5, 1, 1, 1, 1):
        x = R(length)
        torch.testing.assert_close(compiled(x, ours), _counted(x, eagers))
    assert [layer.count for layer in ours] == [layer.count for layer in eagers] == [9] * 3
    assert thunder.cache_misses(compiled) == 2


def test_a_number_varies_though_the_tensor_before_it_is_of_another_kind():
    compiled = _compiled(lambda x, n: x * n)
    for number in (6, 7, 8, 9):
        x = R(2).double() if number == 6 else R(2)
        torch.testing.assert_close(compiled(x, number), x * number)
    assert thunder.cache_misses(compiled) == 2

"""Inputs that a transform adds to a program, and inputs that it computes from overriding tensors."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
import thunder.torch as ltorch
from soundness.harness import ramp
from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import (
    add_input,
    add_trace_output,
    cast_inputs,
    module_tensors,
    replace_calls,
    replace_input,
)


class Stored(thunder.Transform):
    """Overrides tensors with others, and lets the program read `compute(tensor, *others)` in their place."""

    def __init__(self, overrides, computed):
        self.overrides, self.computed = overrides, computed

    def transform_module(self, model):
        for name, tensor in self.overrides.items():
            model.override(name, tensor)

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        for name, (compute, *others) in self.computed.items():
            replace_input(prologue_trace, computation_trace, name, compute, *others)
        return prologue_trace, computation_trace, epilogue_trace


class Nothing(thunder.Transform):
    """A transform that could change inputs, and does not."""

    def transform_traces_pre_prologue(self, *traces, **kwargs):
        return traces


def layer():
    linear = nn.Linear(3, 4)
    with torch.no_grad():
        linear.weight.copy_(ramp(4, 3))
    return linear


def sharded(model):
    """The first two rows of the weight are in use under its name, the others under another name."""
    rows, rest = (nn.Parameter(part.clone()) for part in model.weight.detach().split(2))
    computed = {"weight": (lambda a, b: torch.cat([a, b]), "weight.rest")}
    return Stored({"weight": rows, "weight.rest": rest}, computed)


def test_a_parameter_in_two_parts_is_joined_and_both_parts_are_trained():
    model, x = layer(), ramp(2, 3)
    compiled = thunder.jit(model, transforms=[sharded(model)])
    torch.testing.assert_close(compiled(x), model(x))
    assert [name for name, _ in compiled.named_parameters()] == ["weight", "bias", "weight.rest"]
    compiled(x).square().sum().backward()
    ours = torch.cat([compiled.get_parameter(name).grad for name in ("weight", "weight.rest")])
    theirs = torch.autograd.grad(model(x).square().sum(), model.weight)[0]
    torch.testing.assert_close(ours, theirs)
    assert model.weight.grad is None


@pytest.mark.parametrize("option", [{"frozen": True}, {"cache": "same input"}, {"cache": "no caching"}])
def test_every_cache_mode_reads_the_tensors_in_use(option):
    model, x = layer(), ramp(2, 3)
    compiled = thunder.jit(model, transforms=[sharded(model)], **option)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))


def test_added_tensors_are_guarded_and_later_ones_are_read():
    model, x = layer(), ramp(2, 3)
    compiled = thunder.jit(model, transforms=[sharded(model)])
    compiled(x)
    compiled.override("weight.rest", nn.Parameter(torch.ones(2, 3)))
    expected = F.linear(x, torch.cat([model.weight[:2], torch.ones(2, 3)]), model.bias)
    torch.testing.assert_close(compiled(x), expected)
    assert thunder.cache_misses(compiled) == 1
    compiled.override("weight.rest", torch.ones(2, 3))
    torch.testing.assert_close(compiled(x), expected)
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert reason.source == "overrides['weight.rest']"


def test_an_overriding_tensor_of_another_form_that_no_transform_computes_with_is_an_error():
    compiled = thunder.jit(layer(), transforms=[Nothing()])
    compiled.override("weight", torch.ones(4, 3, dtype=torch.int8))
    with pytest.raises(thunder.PluginError, match="reads weight with other metadata") as caught:
        compiled(ramp(2, 3))
    assert "cpu f32[4, 3]" in str(caught.value)
    assert "cpu i8[4, 3]" in str(caught.value)


class Cast(thunder.Transform):
    """Casts the weights, and changes nothing in programs."""

    def transform_module(self, model):
        for name, tensor in list(model.named_parameters()):
            model.override(name, nn.Parameter(tensor.detach().double()))


@pytest.mark.parametrize("others", [[], [Nothing()], [Stored({}, {"weight": (lambda w: w * 2,)})]])
def test_a_transform_that_casts_weights_works_beside_one_that_computes_inputs(others):
    model, x = layer(), ramp(2, 3).double()
    compiled = thunder.jit(model, transforms=[Cast(), *others])
    factor = 2 if others and isinstance(others[0], Stored) else 1
    expected = F.linear(x, model.weight.double() * factor, model.bias.double())
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(copy.deepcopy(compiled)(x), expected)


def test_a_meta_weight_that_is_replaced_later_is_the_one_in_use():
    double = Stored({}, {"weight": (lambda w: w * 2,)})
    compiled = thunder.jit(nn.Linear(3, 4, device="meta"), transforms=[double])
    for name, tensor in layer().named_parameters():
        compiled.override(name, tensor)
    expected = F.linear(ramp(2, 3), ramp(4, 3) * 2, compiled.get_parameter("bias"))
    torch.testing.assert_close(compiled(ramp(2, 3)), expected)


def test_a_written_buffer_is_not_computed_from_another_tensor():
    stored = Stored({"running_mean": torch.zeros(3).double()}, {"running_mean": (lambda m: m.float(),)})
    with pytest.raises(thunder.UnsupportedProgram, match="writes to running_mean"):
        thunder.jit(nn.BatchNorm1d(3), transforms=[stored])(ramp(2, 3))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, index):
        return self.head(self.table(index))


def test_a_tied_tensor_is_computed_once_and_an_unread_one_not_at_all():
    model, index = Tied(), torch.tensor([1, 4])
    names = ("table.weight", "head.weight", "unused.weight")
    compiled = thunder.jit(model, transforms=[Stored({}, {name: (lambda w: w * 2,) for name in names})])
    weight = model.table.weight * 2
    torch.testing.assert_close(compiled(index), weight[index] @ weight.T)


class Halved(thunder.Transform):
    """Stores the weights of linear layers as whole numbers of eighths."""

    def transform_module(self, model):
        model.override(
            "head.weight", (model.get_parameter("head.weight").detach() * 8).round().to(torch.int8)
        )

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        replace_input(prologue_trace, computation_trace, "head.weight", lambda q: q / 8)
        return prologue_trace, computation_trace, epilogue_trace

    def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        if submodule_name == "head":
            state_dict["weight"] = (state_dict["weight"] * 8).round().to(torch.int8)
        return state_dict

    def reverse_transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        if submodule_name == "head":
            state_dict["weight"] = state_dict["weight"] / 8
        return state_dict


def test_a_tied_tensor_is_stored_and_loaded_under_the_name_by_which_it_was_overridden():
    model, index = Tied(), torch.tensor([1, 4])
    compiled = thunder.jit(model, transforms=[Halved()])
    for _ in range(2):
        state = compiled.original_state_dict()
        assert torch.equal(state["table.weight"], state["head.weight"])
        weight = state["table.weight"]
        assert weight.dtype == torch.float32
        torch.testing.assert_close(compiled(index), weight[index] @ weight.T)
        torch.testing.assert_close(copy.deepcopy(compiled)(index), weight[index] @ weight.T)
        compiled.load_original_state_dict({name: t + 0.25 for name, t in model.state_dict().items()})


def test_one_tensor_under_two_new_names_is_one_input():
    model = nn.Sequential(layer(), nn.Linear(4, 2))
    code = torch.tensor(3.0)
    stored = Stored(
        {"0.weight.code": code, "1.weight.code": code},
        {f"{i}.weight": (lambda w, c: w * c, f"{i}.weight.code") for i in (0, 1)},
    )
    compiled, x = thunder.jit(model, transforms=[stored]), ramp(2, 3)

    def expected(first, second):
        hidden = F.linear(x, model[0].weight * first, model[0].bias)
        return F.linear(hidden, model[1].weight * second, model[1].bias)

    torch.testing.assert_close(compiled(x), expected(3, 3))
    assert len(thunder.last_traces(compiled)[0].args) == 5
    compiled.override("1.weight.code", torch.tensor(2.0))
    torch.testing.assert_close(compiled(x), expected(3, 2))


def hooked(hook):
    return type("Hooked", (thunder.Transform,), {"transform_traces_pre_prologue": hook})()


def misspelt(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
    return replace_input(prologue_trace, computation_trace, "wieght", lambda w: w)


def of_another_shape(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
    return replace_input(prologue_trace, computation_trace, "weight", lambda w: w.sum())


def unread(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
    return add_input(prologue_trace, computation_trace, "extra")


def one_more(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
    computation_trace.args.append(computation_trace.args[0].replace(name="more"))
    return prologue_trace, computation_trace, epilogue_trace


def shorter_calls(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
    return prologue_trace, replace_calls(computation_trace, lambda bsym: bsym.args[0]), epilogue_trace


@pytest.mark.parametrize(
    ("hook", "error", "text"),
    [
        (misspelt, thunder.PluginError, "no tensor 'wieght'; did you mean 'weight'"),
        (
            of_another_shape,
            thunder.PluginError,
            r'weight is computed as "cpu f32\[\]", and the program reads "cpu f32\[4, 3\]"',
        ),
        (unread, thunder.PluginError, "does not unpack 'extra': the program does not read it"),
        (one_more, thunder.PluginError, "Hooked returned has 3 inputs for the computation, which takes 4"),
        (shorter_calls, thunder.PluginError, "is replaced by results of another form"),
    ],
)
def test_wrong_changes_are_errors(hook, error, text):
    model = layer()
    model.register_buffer("extra", torch.ones(1))
    with pytest.raises(error, match=text):
        thunder.jit(model, transforms=[hooked(hook)])(ramp(2, 3))


def test_results_require_grad_where_only_an_added_input_does():
    class Shifted(thunder.Transform):
        def transform_module(self, model):
            model.override("shift", nn.Parameter(torch.ones(4)))

        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            shift = add_input(prologue_trace, computation_trace, "shift")

            def shifted(bsym):
                if bsym.sym.id == "torch.nn.functional.linear":
                    return ltorch.linear(*bsym.args) + shift
                return None

            return prologue_trace, replace_calls(computation_trace, shifted), epilogue_trace

    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = layer().requires_grad_(False)

        def forward(self, x):
            hidden = F.gelu(self.linear(x))
            with torch.no_grad():
                scale = hidden.abs().mean()
            return hidden * scale, scale, hidden.detach()

    model, x = Program(), ramp(2, 3)
    compiled = thunder.jit(model, transforms=[Shifted()])
    shift = compiled.overrides["shift"]

    def eager(shift):
        hidden = F.gelu(model.linear(x) + shift)
        scale = hidden.abs().mean().detach()
        return hidden * scale, scale, hidden.detach()

    ours, theirs = compiled(x), eager(shift)
    torch.testing.assert_close(ours, theirs)
    assert [t.requires_grad for t in ours] == [t.requires_grad for t in theirs] == [True, False, False]
    (gradient,), (expected,) = (torch.autograd.grad(out[0].square().sum(), shift) for out in (ours, theirs))
    torch.testing.assert_close(gradient, expected)
    with torch.no_grad():
        assert not compiled(x)[0].requires_grad


def test_a_constant_is_added_to_a_function_and_trained():
    table = torch.tensor(3.0, requires_grad=True)

    class Scaled(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            proxy, end = TensorProxy("table", like=table), prologue_trace.bound_symbols.pop()
            metadata = tuple(table.shape), str(table.device), table.dtype, table.requires_grad
            prologue_trace.bound_symbols += [
                prims.unpack_function_obj.bind(prims.Constant(table), name="table", output=proxy),
                prims.check_tensor_shape_and_metadata.bind(proxy, *metadata, output=None),
                end,
            ]
            add_trace_output(prologue_trace, proxy, 0)
            computation_trace.args.append(proxy)

            def scaled(bsym):
                return ltorch.sin(*bsym.args) * proxy if bsym.sym.id == "torch.sin" else None

            return prologue_trace, replace_calls(computation_trace, scaled), epilogue_trace

    def program(x):
        y = torch.sin(x)
        with torch.no_grad():
            z = y * 2
        return y + z

    compiled, x = thunder.jit(program, transforms=[Scaled()]), ramp(3)
    for factor in (3.0, 2.0):
        with torch.no_grad():
            table.fill_(factor)
        result = compiled(x)
        torch.testing.assert_close(result, x.sin() * factor * 3)
        (gradient,) = torch.autograd.grad(result.sum(), table)
        torch.testing.assert_close(gradient, x.sin().sum())
    assert thunder.cache_misses(compiled) == 1


def test_names_of_tensors_are_relative_to_the_compiled_module():
    seen = {}

    def look(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        seen.update(module_tensors(prologue_trace))
        return prologue_trace, computation_trace, epilogue_trace

    model = layer()
    thunder.jit(nn.Sequential(model), transforms=[hooked(look)])(ramp(2, 3))
    thunder.jit(lambda x: model(x), transforms=[hooked(look)])(ramp(2, 3))
    of_module, of_closure = list(seen)[:2], list(seen)[2:]
    assert of_module == ["0.weight", "0.bias"]
    assert [name.partition(".")[2] for name in of_closure] == ["weight", "bias"]


class Doubled(thunder.Transform):
    """Doubles what linear layers compute with one weight, and adds a parameter to it."""

    def __init__(self, name, size):
        self.name, self.size = name, size

    def transform_module(self, model):
        model.override(f"{self.name}.shift", nn.Parameter(ramp(self.size)))

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        stored = module_tensors(prologue_trace)[self.name].name
        sources = cast_inputs(computation_trace)

        def doubled(bsym):
            is_linear = bsym.sym.id == "torch.nn.functional.linear"
            if not is_linear or getattr(sources.get(bsym.args[1].name), "name", None) != stored:
                return None
            shift = add_input(prologue_trace, computation_trace, f"{self.name}.shift")
            return ltorch.linear(*bsym.args) * 2 + shift

        return prologue_trace, replace_calls(computation_trace, doubled, nested=True), epilogue_trace


@pytest.mark.parametrize("is_first", [True, False])
def test_calls_with_a_weight_that_another_transform_computes_are_replaced(is_first):
    model, x = layer(), ramp(2, 3)
    transforms = [Doubled("weight", 4), sharded(model)]
    compiled = thunder.jit(model, transforms=transforms if is_first else transforms[::-1])
    torch.testing.assert_close(compiled(x), model(x) * 2 + ramp(4))


def test_calls_within_composites_are_replaced():
    model, x = nn.MultiheadAttention(4, 2, batch_first=True).double(), ramp(2, 3, 4).double()
    compiled = thunder.jit(model, transforms=[Doubled("out_proj.weight", 4)])
    outputs, weights = compiled(x, x, x)
    expected, expected_weights = model(x, x, x)
    torch.testing.assert_close((outputs, weights), (expected * 2 + ramp(4), expected_weights))
    outputs.sin().sum().backward()
    gradients = {name: p.grad for name, p in compiled.named_parameters()}
    for p in model.parameters():
        p.grad = None
    shift = ramp(4).requires_grad_()
    (model(x, x, x)[0] * 2 + shift).sin().sum().backward()
    torch.testing.assert_close(gradients["out_proj.weight.shift"], shift.grad)
    torch.testing.assert_close(gradients["in_proj_weight"], model.in_proj_weight.grad)


def test_a_function_that_computes_an_input_or_replaces_a_call_does_not_write():
    model, x = layer(), ramp(2, 3)
    rows = nn.Parameter(model.weight.detach()[:2].clone())
    transform = Stored({"weight": rows}, {"weight": (lambda w: torch.cat([w.mul_(2), w]),)})
    with torch.no_grad(), pytest.raises(thunder.PluginError, match="computes weight writes to a tensor"):
        thunder.jit(model, transforms=[transform])(x)
    torch.testing.assert_close(rows, model.weight[:2])

    class Writes(Nothing):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            def scaled(bsym):
                return bsym.args[0].mul_(2).relu() if bsym.sym.name == "relu" else None

            return prologue_trace, replace_calls(computation_trace, scaled), epilogue_trace

    with pytest.raises(thunder.PluginError, match=r"torch.relu writes to a tensor, by torch.*mul_"):
        thunder.jit(torch.relu, transforms=[Writes()])(x)
    torch.testing.assert_close(x, ramp(2, 3))

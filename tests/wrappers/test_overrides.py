"""Overrides: tensors in use instead of a module's own, by dotted name; state dicts in both forms."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from soundness.harness import ramp


class Halved(thunder.Transform):
    """Overrides every weight by half of it; the original is twice the weight in use."""

    def transform_module(self, model):
        for name, weight in list(model.named_parameters()):
            if name.endswith("weight"):
                model.override(name, weight.detach() / 2)

    def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        return {k: v / 2 if k == "weight" else v for k, v in state_dict.items()}

    def reverse_transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        return {k: v * 2 if k == "weight" else v for k, v in state_dict.items()}


class Logged(thunder.Transform):
    """Appends what its hooks are called with."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def transform_module(self, model):
        self.log.append(("module", self.name))

    def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        self.log.append((self.name, submodule_name, sorted(state_dict)))
        return state_dict

    def reverse_transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        self.log.append((self.name, submodule_name, sorted(state_dict)))
        return state_dict


def filled(*layers):
    model = nn.Sequential(*layers)
    for i, p in enumerate((*model.parameters(), *model.buffers())):
        p.data = ramp(*p.shape, start=float(i)) if p.shape else p.data
    return model


def two_layers():
    return filled(nn.Linear(3, 3), nn.Linear(3, 2))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.first.weight.data = ramp(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def same(a, b):
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


# -- what the program reads ----------------------------------------------------------------------------------


def test_an_overridden_parameter_is_the_one_that_the_program_reads():
    model, weight, x = two_layers(), ramp(3, 3, start=9.0), ramp(2, 3)
    wrapped = thunder.jit(model)
    wrapped.override("0.weight", weight)
    with torch.no_grad():
        assert torch.equal(wrapped(x), model[1](F.linear(x, weight, model[0].bias)))


def test_an_overridden_buffer_is_the_one_that_the_program_reads_and_updates():
    model, x = filled(nn.BatchNorm1d(3)), ramp(4, 3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    wrapped, mean = thunder.jit(model), torch.zeros(3)
    wrapped.override("0.running_mean", mean)
    with torch.no_grad():
        wrapped(x)
    assert torch.allclose(mean, 0.1 * x.mean(0))
    assert torch.equal(model[0].running_mean, before["0.running_mean"])


def test_a_parameter_reached_through_iteration_or_a_closure_is_overridden_too():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ramp(3))
            self.alias = [self.weight]

        def forward(self, x):
            return x + self.alias[0] + next(iter(self.parameters())) + self.weight

    wrapped = thunder.jit(Sum())
    wrapped.override("weight", torch.ones(3))
    with torch.no_grad():
        assert torch.equal(wrapped(ramp(3)), ramp(3) + 3)


def test_an_original_given_as_an_argument_is_read_as_it_is():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ramp(3))

        def forward(self, x):
            return x - self.weight

    model = Scale()
    wrapped = thunder.jit(model)
    wrapped.override("weight", torch.ones(3))
    with torch.no_grad():
        assert torch.equal(wrapped(model.weight), ramp(3) - 1)


def test_an_override_after_a_call_is_seen_by_the_next_call():
    model, x = two_layers(), ramp(2, 3)
    wrapped = thunder.jit(model)
    with torch.no_grad():
        assert torch.equal(wrapped(x), model(x))
        wrapped.override("1.bias", torch.zeros(2))
        assert torch.equal(wrapped(x), F.linear(model[0](x), model[1].weight))
        wrapped.override("1.bias", torch.ones(2))
        assert torch.equal(wrapped(x), F.linear(model[0](x), model[1].weight) + 1)
    assert (
        thunder.cache_misses(wrapped) == 2
    )  # the second tensor fits the program that was made for the first


def test_an_override_of_another_shape_is_guarded():
    wrapped = thunder.jit(filled(nn.Linear(3, 3, bias=False)))
    for rows in (2, 4):
        wrapped.override("0.weight", torch.ones(rows, 3))
        with torch.no_grad():
            assert wrapped(ramp(2, 3)).shape == (2, rows)


def test_an_override_of_one_name_holds_for_every_name_of_the_tensor():
    wrapped = thunder.jit(Tied())
    wrapped.override("second.weight", 2 * torch.eye(3))
    with torch.no_grad():
        assert torch.equal(wrapped(ramp(2, 3)), ramp(2, 3) * 4)
    assert set(wrapped.overrides) == {"first.weight", "second.weight"}
    assert [name for name, _ in wrapped.named_parameters()] == ["first.weight"]


def test_a_program_that_inlines_a_compiled_module_reads_its_overrides_and_sees_later_ones():
    inner = thunder.jit(filled(nn.Linear(3, 3, bias=False)))
    outer = thunder.jit(lambda x: inner(x) + 1)
    with torch.no_grad():
        outer(ramp(2, 3))
        inner.override("0.weight", torch.eye(3))
        assert torch.equal(outer(ramp(2, 3)), ramp(2, 3) + 1)


def test_an_overridden_parameter_that_is_replaced_raises_in_a_nested_module_until_it_is_loaded():
    model, x = two_layers(), ramp(2, 3)
    wrapped = thunder.jit(model, transforms=[Halved()])
    with torch.no_grad():
        wrapped(x)
        model[0] = nn.Linear(3, 3)
        with pytest.raises(thunder.InvalidArgument, match=r"0\.weight was replaced"):
            wrapped(x)
        wrapped.load_original_state_dict(model.state_dict())
        hidden = F.linear(x, model[0].weight / 2, model[0].bias)
        assert torch.equal(wrapped(x), F.linear(hidden, model[1].weight / 2, model[1].bias))


def test_an_original_that_is_put_back_is_served_again():
    model, x = two_layers(), ramp(2, 3)
    wrapped = thunder.jit(model, transforms=[Halved()])
    original = model[0].weight
    with torch.no_grad():
        expected = wrapped(x)
        model[0].weight = None
        with pytest.raises(thunder.InvalidArgument, match="load_original_state_dict"):
            wrapped(x)
        model[0].weight = original
        assert torch.equal(wrapped(x), expected)
    assert thunder.cache_hits(wrapped) == 1


def test_a_replaced_parameter_is_not_accepted_by_adding_a_transform_or_by_copying():
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    wrapped._model[1].weight = nn.Parameter(ramp(2, 3))
    for other in (thunder.core.transforms.add_transform(wrapped, transform=[]), copy.deepcopy(wrapped)):
        with torch.no_grad(), pytest.raises(thunder.InvalidArgument, match=r"1\.weight was replaced"):
            other(ramp(2, 3))


def test_an_override_keeps_the_order_of_the_programs_inputs():
    wrapped = thunder.jit(two_layers())
    names = []
    for _ in range(2):
        with torch.no_grad():
            wrapped(ramp(2, 3))
        names.append([p.name for p in thunder.last_traces(wrapped)[0].args])
        wrapped.override("0.weight", torch.eye(3))
    assert names == [["input", "t_0_bias", "t_0_weight", "t_1_bias", "t_1_weight"]] * 2


def test_gradients_arrive_in_the_overriding_parameter():
    model, x = filled(nn.Linear(3, 3, bias=False)), ramp(2, 3)
    wrapped = thunder.jit(model)
    wrapped.override("0.weight", nn.Parameter(torch.eye(3)))
    wrapped(x).sum().backward()
    assert model[0].weight.grad is None
    assert torch.equal(wrapped.get_parameter("0.weight").grad, x.sum(0).expand(3, 3))


class Counter(nn.Module):
    """Assigns a buffer, in some calls a second one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("others", torch.zeros(()))

    def forward(self, x, other=False):
        self.count = self.count + x.sum().detach()
        if other:
            self.others = self.others + 1
            self.count = self.count * 2
        return x * self.count + self.others


class OverridesBuffers(thunder.Transform):
    """Overrides buffers by copies."""

    def transform_module(self, model):
        for name, buffer in list(model.named_buffers()):
            model.override(name, buffer.clone())


class ReadsBuffers(OverridesBuffers):
    """Overrides buffers, and may change how they are read."""

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        return prologue_trace, computation_trace, epilogue_trace


def test_a_buffer_that_a_transform_overrode_is_assigned_among_the_overriding_tensors():
    model, eager = Counter(), Counter()
    compiled = thunder.jit(model, transforms=[OverridesBuffers()])
    for call in range(5):
        x = ramp(3) * call
        assert torch.equal(compiled(x, call % 2 == 1), eager(x, call % 2 == 1))
        assert all(torch.equal(compiled.get_buffer(n), b) for n, b in eager.named_buffers())
        assert all(torch.equal(compiled.state_dict()[n], b) for n, b in eager.state_dict().items())
    assert thunder.cache_misses(compiled) == 2
    assert not model.count.any()


def test_a_program_that_assigns_a_buffer_which_a_transform_stores_is_refused():
    compiled = thunder.jit(Counter(), transforms=[ReadsBuffers()])
    with pytest.raises(
        thunder.UnsupportedProgram, match=r"self\.count, which is overridden, and a transform"
    ):
        compiled(ramp(3))


@pytest.mark.parametrize("transforms", [[], [OverridesBuffers()]], ids=["alone", "after a transform"])
def test_a_buffer_that_the_user_overrode_is_assigned_among_the_overriding_tensors(transforms):
    model, eager = Counter(), Counter()
    compiled = thunder.jit(model, transforms=transforms)
    for call in range(6):
        if call in (0, 3):  # the second one has another shape
            compiled.override("count", torch.ones(1 + call))
            eager.count = torch.ones(1 + call)
        x = ramp(4) * call
        assert torch.equal(compiled(x, call % 2 == 1), eager(x, call % 2 == 1))
        assert all(torch.equal(compiled.get_buffer(n), b) for n, b in eager.named_buffers())
    assert torch.equal(model.count, torch.zeros(1))


def test_what_is_assigned_to_a_buffer_that_the_user_overrode_has_a_gradient_of_eager():
    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.zeros(3))

        def forward(self, x):
            self.scale = self.scale * 2
            return (x * self.scale).sum()

    grads = []
    for compile in (thunder.jit, lambda module: module):
        module, x = compile(Scales()), ramp(3).requires_grad_()
        if compile is thunder.jit:
            module.override("scale", ramp(3) + 1)
        else:
            module.scale = ramp(3) + 1
        for _ in range(3):
            module(x).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


class TiedCounter(Counter):
    """Has one tensor under two names."""

    def __init__(self):
        super().__init__()
        self.register_buffer("others", self.count)


@pytest.mark.parametrize("transforms", [[], [OverridesBuffers()]], ids=["the user", "a transform"])
def test_a_program_that_assigns_an_overridden_buffer_of_two_names_is_refused(transforms):
    compiled = thunder.jit(TiedCounter(), transforms=transforms)
    if not transforms:
        compiled.override("count", torch.ones(1))
    text = r"self\.count, whose overriding tensor has the names count and others"
    with pytest.raises(thunder.UnsupportedProgram, match=text):
        compiled(ramp(3))


def test_a_program_that_assigns_none_to_an_overridden_buffer_is_refused():
    class Ends(Counter):
        def forward(self, x):
            self.count = None
            return x

    compiled = thunder.jit(Ends())
    compiled.override("count", torch.ones(1))
    with pytest.raises(thunder.UnsupportedProgram, match=r"assigns None to self\.count, which is overridden"):
        compiled(ramp(3))
    assert torch.equal(compiled.get_buffer("count"), torch.ones(1))


# -- tensors in use ------------------------------------------------------------------------------------------


def test_the_tensors_in_use_are_given_under_the_names_of_the_module():
    model, weight = two_layers(), nn.Parameter(ramp(3, 3))
    wrapped = thunder.jit(model)
    wrapped.override("0.weight", weight)
    wrapped.override("0.weight.absmax", ramp(3))
    assert wrapped.get_parameter("0.weight") is weight
    assert wrapped.get_parameter("0.bias") is model[0].bias
    named = dict(wrapped.named_parameters())
    assert list(named) == list(dict(model.named_parameters()))
    assert named["0.weight"] is weight
    assert named["1.weight"] is model[1].weight
    assert [n for n, _ in wrapped.named_buffers("m")] == ["m.0.weight.absmax"]
    assert torch.equal(wrapped.get_buffer("0.weight.absmax"), ramp(3))
    assert wrapped.overrides["0.weight"] is weight


def test_tensors_in_use_that_are_one_object_are_given_once():
    wrapped, weight = thunder.jit(filled(nn.Linear(3, 3), nn.Linear(3, 3))), nn.Parameter(ramp(3, 3))
    wrapped.override("0.weight", weight)
    wrapped.override("1.weight", weight)
    assert [n for n, _ in wrapped.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert len(list(wrapped.named_parameters(remove_duplicate=False))) == 4


def test_moving_the_wrapper_moves_the_overriding_tensors():
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    with torch.no_grad():
        expected = wrapped(ramp(2, 3))
        assert wrapped.to(torch.float64) is wrapped
        result = wrapped(ramp(2, 3, dtype=torch.float64))
    assert result.dtype == wrapped.overrides["0.weight"].dtype == torch.float64
    assert torch.allclose(result.float(), expected)


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("0.weight", [1.0], r"override\('0\.weight'\) needs a tensor"),
        ("7.weight", torch.ones(3), r"override\('7\.weight'\): the module has no tensor"),
        ("", torch.ones(3), r"override\(''\): the module has no tensor"),
        ("0", torch.ones(3), r"is not a parameter or buffer(.|\n)*type:  Linear"),
        ("0.training", torch.ones(3), r"override\('0.training'\): this attribute of the module is not"),
    ],
)
def test_an_override_that_cannot_be_meant_is_refused(name, tensor, reason):
    wrapped = thunder.jit(two_layers())
    with pytest.raises(thunder.InvalidArgument, match=reason):
        wrapped.override(name, tensor)
    assert not wrapped.overrides


def test_a_deep_copy_has_overrides_of_its_own():
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    with torch.no_grad():
        expected = wrapped(ramp(2, 3))
        twin = copy.deepcopy(wrapped)
        assert torch.equal(twin(ramp(2, 3)), expected)
        twin.overrides["0.weight"].zero_()
        assert torch.equal(wrapped(ramp(2, 3)), expected)
        assert not torch.equal(twin(ramp(2, 3)), expected)


def test_transforms_change_a_module_in_list_order_once_and_added_ones_after_them():
    log = []
    compiled = thunder.jit(two_layers(), transforms=[Logged("a", log), Logged("b", log)])
    assert log == [("module", "a"), ("module", "b")]
    compiled.override("0.bias", torch.zeros(3))
    other = thunder.core.transforms.add_transform(compiled, transform=Logged("c", log))
    with torch.no_grad():
        assert torch.equal(other(ramp(2, 3)), compiled(ramp(2, 3)))
    assert log[2:] == [("module", "c")]
    assert other.overrides["0.bias"] is compiled.overrides["0.bias"]


# -- state dicts ---------------------------------------------------------------------------------------------


def test_the_state_dict_has_the_tensors_in_use_and_the_new_names():
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    wrapped.override("0.weight.absmax", ramp(3))
    state = wrapped.state_dict(prefix="m.")
    assert list(state) == ["m.0.weight", "m.0.bias", "m.1.weight", "m.1.bias", "m.0.weight.absmax"]
    assert torch.equal(state["m.0.weight"], two_layers()[0].weight / 2)
    assert wrapped.state_dict(keep_vars=True)["0.weight"] is wrapped.overrides["0.weight"]


def test_the_original_state_dict_is_that_of_the_unwrapped_module():
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    assert same(wrapped.original_state_dict(), two_layers().state_dict())
    assert next(iter(wrapped.original_state_dict(prefix="m."))) == "m.0.weight"


def test_an_original_state_dict_is_loaded_in_the_transformed_form():
    model, x = two_layers(), ramp(2, 3)
    wrapped = thunder.jit(model, transforms=[Halved()])
    state = {k: v + 1 for k, v in two_layers().state_dict().items()}
    own = model[0].weight.detach().clone()
    with torch.no_grad():
        wrapped(x)
        wrapped.load_original_state_dict(state)
        hidden = F.linear(x, state["0.weight"] / 2, state["0.bias"])
        assert torch.equal(wrapped(x), F.linear(hidden, state["1.weight"] / 2, state["1.bias"]))
    assert thunder.cache_misses(wrapped) == 1
    assert torch.equal(model[0].weight, own)
    assert same(wrapped.original_state_dict(), state)


def test_a_transformed_state_dict_is_loaded_as_it_is():
    wrapped, other = (thunder.jit(two_layers(), transforms=[Halved()]) for _ in range(2))
    state = {k: v + 1 for k, v in other.state_dict().items()}
    for assign in (False, True):
        wrapped.load_state_dict(state, assign=assign)
        assert same(wrapped.state_dict(), state)


def test_state_dict_hooks_run_in_list_order_and_in_reverse_submodule_by_submodule_tied_weights_once():
    log = []
    wrapped = thunder.jit(Tied(), transforms=[Logged("a", log), Logged("b", log)])
    log.clear()
    wrapped.load_original_state_dict(Tied().state_dict())
    assert log == [("a", "first", ["weight"]), ("b", "first", ["weight"])]
    log.clear()
    wrapped.original_state_dict()
    assert [entry[:2] for entry in log] == [("b", "first"), ("a", "first"), ("b", "second"), ("a", "second")]


def test_an_original_state_dict_that_is_loaded_as_a_transformed_one_raises_and_names_the_way():
    wrapped = thunder.jit(two_layers())
    wrapped.override("0.weight", ramp(2, 2))
    wrapped.override("0.weight.absmax", ramp(3))
    with pytest.raises(thunder.InvalidArgument, match="load_original_state_dict") as caught:
        wrapped.load_state_dict(two_layers().state_dict())
    assert "0.weight.absmax: missing" in str(caught.value)
    assert "0.weight: (3, 3) torch.float32" in str(caught.value)


@pytest.mark.parametrize("load", ["load_state_dict", "load_original_state_dict"])
@pytest.mark.parametrize("transforms", [[], [Halved]])
def test_keys_that_do_not_fit_raise_with_the_text_of_torch(load, transforms):
    wrapped = thunder.jit(two_layers(), transforms=[t() for t in transforms])
    state = two_layers().state_dict()
    state["2.bias"] = state.pop("1.bias")
    with pytest.raises(thunder.OperatorError) as caught:
        getattr(wrapped, load)(state)
    assert 'Unexpected key(s) in state_dict: "2.bias"' in str(caught.value)
    assert 'Missing key(s) in state_dict: "1.bias"' in str(caught.value)


def test_a_shape_that_does_not_fit_raises_with_the_text_of_torch():
    state = two_layers().state_dict()
    state["1.bias"] = ramp(5)
    with pytest.raises(thunder.OperatorError, match=r"size mismatch for 1.bias"):
        thunder.jit(two_layers()).load_state_dict(state)


def test_a_hook_that_returns_no_state_dict_is_named():
    class Forgetful(thunder.Transform):
        def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
            state_dict.clear()

    wrapped = thunder.jit(two_layers(), transforms=[Forgetful()])
    with pytest.raises(thunder.PluginError, match=r"Forgetful\.transform_state_dict_for_submodule"):
        wrapped.load_original_state_dict(two_layers().state_dict())

"""Models on the meta device get memory and values; the compiled program computes what an eager model does."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.profiler import ProfilerActivity, profile

import thunder
from thunder.core.rewrite import replace_input
from thunder.transforms.materialization import MaterializationTransform

ORIGINAL = MaterializationTransform.init_from_original_state_dict
TRANSFORMED = MaterializationTransform.init_from_transformed_state_dict
MODULE = MaterializationTransform.init_from_original_module_init


class Small(nn.Module):
    """A model with tied weights, attention, statistics, a frozen bias and a buffer in no state dict."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 11)
        self.head.weight = self.embedding.weight
        self.head.bias.requires_grad_(False)
        self.register_buffer("angles", self.cosines(), persistent=False)

    def cosines(self, device=None):
        return torch.arange(8, dtype=torch.float32, device=device).cos()

    def reset_parameters(self):
        self.angles = self.cosines(self.angles.device)

    def forward(self, tokens):
        hidden = self.layer(self.embedding(tokens) * self.angles)
        return self.head(self.norm(hidden.transpose(1, 2)).transpose(1, 2))


class Int8(thunder.Transform):
    """Linear weights in int8; works on the meta device."""

    def transform_module(self, model):
        self.layers = [name for name, m in model.named_modules() if type(m) is nn.Linear]
        for layer in self.layers:
            weight = model.get_parameter(f"{layer}.weight").detach()
            model.override(f"{layer}.weight", torch.empty_like(weight, dtype=torch.int8))
            model.override(f"{layer}.weight.scale", torch.empty_like(weight[:, :1]))

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        for name in (f"{layer}.weight" for layer in self.layers):
            replace_input(prologue_trace, computation_trace, name, lambda q, s: q * s, f"{name}.scale")
        return prologue_trace, computation_trace, epilogue_trace

    def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        if submodule_name in self.layers:
            weight = state_dict["weight"]
            scale = weight.amax(1, keepdim=True).abs() + 1.0
            quantised = torch.empty_like(weight, dtype=torch.int8)
            for row, source, size in zip(quantised, weight, scale, strict=True):
                row.copy_((source / size * 100).round_())
            state_dict["weight"], state_dict["weight.scale"] = quantised, scale / 100
        return state_dict


def on_meta(build):
    with torch.device("meta"):
        return build()


def small(seed=0):
    torch.manual_seed(seed)
    return Small()


def assert_computes_the_same(compiled, reference):
    """Two training steps, with statistics that they write, and evaluation."""
    reference, tokens = copy.deepcopy(reference), torch.tensor([[1, 2, 3], [4, 5, 10]])
    for _ in range(2):
        for model in (compiled, reference):
            out = model(tokens)
            (out * out.detach().sin()).mean().backward()
    grads = {name: p.grad for name, p in reference.named_parameters()}
    for name, p in compiled.named_parameters():
        torch.testing.assert_close(p.grad, grads.pop(name))
    assert grads == {}
    torch.testing.assert_close(compiled.state_dict(), reference.state_dict())
    torch.testing.assert_close(compiled.eval()(tokens), reference.eval()(tokens))
    assert thunder.cache_misses(compiled) == 2


def saved(state, folder, kind):
    path = folder / f"weights.{kind}"
    if kind == "pt":
        torch.save(state, path)
    else:  # safetensors refuses names that share memory
        save_file({name: t for name, t in state.items() if name != "head.weight"}, path)
    return path


@pytest.mark.parametrize("source", ["mapping", "original", "transformed", "pt", "safetensors"])
def test_a_model_computes_with_the_weights_of_a_state_dict(source, tmp_path):
    reference, model = small(), on_meta(Small)
    init = {
        "mapping": reference.state_dict,
        "original": lambda: ORIGINAL(reference.state_dict()),
        "transformed": lambda: TRANSFORMED(reference.state_dict()),
    }.get(source, lambda: saved(reference.state_dict(), tmp_path, source))()
    compiled = thunder.jit(model, transforms=MaterializationTransform("cpu", init=init))
    assert all(t.is_meta for t in (*model.parameters(), *model.buffers()))
    assert compiled.get_parameter("head.weight") is compiled.get_parameter("embedding.weight")
    assert not compiled.get_parameter("head.bias").requires_grad
    storages = {t.data_ptr() for t in reference.parameters()}
    assert not any(p.data_ptr() in storages for p in compiled.parameters())
    assert_computes_the_same(compiled, reference)


def test_the_initialisation_of_the_module_itself_is_that_of_its_construction():
    reference, model = small(seed=3), on_meta(Small)
    torch.manual_seed(3)
    compiled = thunder.jit(model, transforms=MaterializationTransform("cpu", init=MODULE()))
    values = compiled.state_dict()
    for name, value in reference.state_dict().items():
        assert torch.equal(values[name], value), name
    assert torch.equal(compiled.get_buffer("angles"), reference.angles)


def test_an_outer_module_that_initialises_inner_weights_has_the_last_word():
    def build():
        return nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    torch.manual_seed(4)
    reference = build()
    torch.manual_seed(4)
    compiled = thunder.jit(on_meta(build), transforms=MaterializationTransform("cpu", init=MODULE()))
    for name, value in reference.state_dict().items():
        assert torch.equal(compiled.state_dict()[name], value), name


def test_memory_without_values_is_loaded_later():
    reference, model = small(), on_meta(Small)
    compiled = thunder.jit(model, transforms=MaterializationTransform("cpu", init=None))
    assert compiled.get_parameter("layer.linear1.weight").isnan().all()
    compiled.load_state_dict(reference.state_dict())
    assert_computes_the_same(compiled, reference)


@pytest.mark.parametrize("assign", [False, True])
def test_a_loaded_state_leaves_the_users_module_on_the_meta_device(assign):
    """BatchNorm adds a counter to a state dict that lacks one."""
    reference, model, x = nn.BatchNorm1d(3), on_meta(lambda: nn.BatchNorm1d(3)), torch.randn(4, 3)
    compiled = thunder.jit(model, transforms=MaterializationTransform("cpu", init=MODULE()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.load_state_dict(dict(reference.state_dict()), assign=assign)
    assert all(t.is_meta for t in (*model.parameters(), *model.buffers()))
    torch.testing.assert_close(compiled(x), copy.deepcopy(reference)(x))


def test_weights_are_quantised_before_they_are_allocated():
    reference, model, tokens = small(), on_meta(Small), torch.tensor([[1, 2, 3]])
    for each in (model, reference):  # tied weights would be those of the embedding
        each.head.weight = nn.Parameter(each.head.weight.detach().clone())

    def quantised(state):
        return thunder.jit(model, transforms=[Int8(), MaterializationTransform("cpu", init=state)]).eval()

    compiled = quantised(reference.state_dict())
    assert compiled.get_buffer("head.weight").dtype is torch.int8
    assert (compiled(tokens) - reference.eval()(tokens)).abs().max() < 0.1
    assert torch.equal(quantised(compiled.state_dict())(tokens), compiled(tokens))


def test_transforms_after_it_change_weights_that_have_values():
    class Halved(thunder.Transform):
        def transform_module(self, model):
            model.override("weight", nn.Parameter(model.get_parameter("weight").detach() / 2))

        def transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
            return {name: t / 2 if name == "weight" else t for name, t in state_dict.items()}

    reference, model = nn.Linear(3, 2), on_meta(lambda: nn.Linear(3, 2))
    transforms = [MaterializationTransform("cpu", init=reference.state_dict()), Halved()]
    compiled = thunder.jit(model, transforms=transforms)
    assert torch.equal(compiled.get_parameter("weight"), reference.weight / 2)
    compiled.load_original_state_dict(reference.state_dict())
    assert torch.equal(compiled.get_parameter("weight"), reference.weight / 2)


def peak_and_final_bytes(make, mapped):
    """Return the largest and the last number of bytes that torch has allocated while `make` runs.

    Without the memory that `mapped` bytes of a file are mapped to.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = make()
    memory = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(memory, key=lambda e: e.start_ns()) if abs(e.nbytes()) != mapped]
    totals = list(itertools.accumulate(changes))
    return result, max(totals), totals[-1]


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("source", ["file", "module"])
def test_memory_is_at_most_the_largest_parameter_above_the_final_size(source, quantised, tmp_path):
    def build():
        return nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 256))

    reference, model = build(), on_meta(build)
    path = tmp_path / "weights.safetensors"
    save_file(reference.state_dict(), path)
    init = ORIGINAL(path) if source == "file" else MODULE()
    transforms = [*([Int8()] if quantised else []), MaterializationTransform("cpu", init=init)]
    mapped = path.stat().st_size
    compiled, peak, final = peak_and_final_bytes(lambda: thunder.jit(model, transforms=transforms), mapped)
    in_use = sum(t.nbytes for t in compiled.state_dict().values())
    largest = max(p.nbytes for p in reference.parameters())
    assert in_use <= final <= in_use + 1024
    if quantised:  # the values that the hook returns are copied
        largest += 256 * 256 + 4 * 256
    assert peak <= in_use + largest + 4096


def test_a_declared_device_is_that_of_the_trace_and_of_the_memory():
    model = on_meta(lambda: nn.Linear(3, 2))
    for p in model.parameters():
        p.__thunder_device = torch.device("cpu")
    plan = thunder.plan(model, torch.ones(1, 3), device="cpu")
    assert 't_weight: "cpu f32[2, 3]"' in str(plan.traces[0])
    with pytest.raises(thunder.InvalidArgument, match=r"weight is on the meta device"):
        thunder.jit(model)(torch.ones(1, 3))
    compiled = thunder.jit(model, transforms=MaterializationTransform("cuda", init=MODULE()))
    assert compiled.get_parameter("weight").device.type == "cpu"


def test_weights_that_a_transform_supplies_while_a_program_is_compiled_are_used():
    model, reference = on_meta(lambda: nn.Linear(3, 2)), nn.Linear(3, 2)
    for p in model.parameters():
        p.__thunder_device = torch.device("cpu")
    weights = {name: p.detach().clone() for name, p in reference.named_parameters()}

    class Late(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue, computation, epilogue, **kwargs):
            assert 't_weight: "cpu f32[2, 3]"' in str(computation)
            for name, value in weights.items():
                torch.utils.swap_tensors(model.get_parameter(name), nn.Parameter(value))
            return prologue, computation, epilogue

    compiled, x = thunder.jit(model, transforms=Late()), torch.ones(1, 3)
    assert torch.equal(compiled(x), reference(x))
    assert torch.equal(compiled(x), reference(x))
    assert thunder.cache_misses(compiled) == 1


class Bare(nn.Module):
    """A weight without a method that gives it values."""

    def __init__(self, extra=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        if extra:
            self.register_buffer("scale", torch.ones(3), persistent=False)

    def forward(self, x):
        return x * self.weight


class Forgetful(Bare):
    """A method that forgets the weight."""

    def reset_parameters(self):
        pass


FAULTS = {
    "no init": (lambda: MaterializationTransform("cpu"), "init_from_original_module_init"),
    "a number": (lambda: MaterializationTransform("cpu", init=3), "init=3"),
    "a function": (lambda: compiled_with(torch.sin, {}), "modules"),
    "neither form": (lambda: materialised(Bare, {"weight": torch.ones(4)}), r"shape \(4,\), not \(3,\)"),
    "another dtype": (lambda: materialised(Bare, {"weight": torch.ones(3).double()}), "float64"),
    "missing": (lambda: materialised(Bare, ORIGINAL({})), "missing:  weight"),
    "unexpected": (lambda: materialised(Bare, ORIGINAL({"weight": torch.ones(3), "w": 1})), "unexpected:  w"),
    "no values": (lambda: materialised(Bare, {"weight": torch.ones(3, device="meta")}), "no values"),
    "no method": (lambda: materialised(Bare, MODULE()), "Bare"),
    "a method without effect": (lambda: materialised(Forgetful, MODULE()), "gives weight no values"),
    "a buffer": (lambda: materialised(lambda: Bare(True), {"weight": torch.ones(3)}), "scale"),
    "a lazy module": (lambda: materialised(lambda: nn.LazyLinear(3), MODULE()), "lazy"),
    "a file of another kind": (lambda: MaterializationTransform("cpu", init="weights.txt"), "safetensors"),
}


def compiled_with(program, init):
    return thunder.jit(program, transforms=MaterializationTransform("cpu", init=init))


def materialised(build, init):
    return compiled_with(on_meta(build), init)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_refused_with_the_reason(fault):
    call, words = FAULTS[fault]
    with pytest.raises(thunder.InvalidArgument, match=words):
        call()


def test_a_buffer_in_no_state_dict_may_be_given():
    values = {"weight": torch.ones(3), "scale": torch.full((3,), 2.0)}
    compiled = materialised(lambda: Bare(True), ORIGINAL(values))
    assert torch.equal(compiled.get_buffer("scale"), values["scale"])


def test_copies_and_pickles_have_the_weights():
    compiled = materialised(lambda: nn.Linear(3, 2), MODULE())
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert torch.equal(other(torch.ones(1, 3)), compiled(torch.ones(1, 3)))

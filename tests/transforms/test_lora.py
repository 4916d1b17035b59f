"""LoRA: a hand-written module in eager is the judge; adapters folded in, saved alone, stacked with others."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from int8_weights import Int8Weights
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder_transforms.lora import LORATransform
from thunder_transforms.materialization import MaterializationTransform
from thunder_transforms.non_finite import NonFiniteDetector


class HandWritten(nn.Module):
    """A linear layer with an adapter, as a user of eager writes it."""

    def __init__(self, base: nn.Linear, a: torch.Tensor, b: torch.Tensor, scale: float, p: float) -> None:
        super().__init__()
        self.base, self.dropout, self.scale = base.requires_grad_(False), nn.Dropout(p), scale
        self.a, self.b = nn.Parameter(a.detach().clone()), nn.Parameter(b.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * F.linear(F.linear(self.dropout(x), self.a), self.b)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 11), nn.GELU(), nn.Linear(11, 3, bias=False))


def adapted(model: nn.Module, *others: thunder.Transform, **arguments):
    """Return the transform and the compiled module, with adapters that are not zero."""
    lora = LORATransform(r=2, lora_alpha=4, **arguments)
    compiled = thunder.jit(model, transforms=[*others, lora])
    torch.manual_seed(1)
    for name, tensor in compiled.overrides.items():
        if name.endswith("lora_b") or "merged_b" in name:
            nn.init.normal_(tensor, std=0.3)
    return lora, compiled


def hand_written(model: nn.Sequential, compiled: nn.Module, p: float) -> nn.Module:
    eager = copy.deepcopy(model)
    for i in (0, 2):
        a, b = (compiled.get_parameter(f"{i}.weight.lora_{part}") for part in "ab")
        eager[i] = HandWritten(eager[i], a, b, 2.0, p)
    return eager


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 30).view(5, 6)


def seeded(fn, *args):
    torch.manual_seed(3)
    return fn(*args)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("amp", [False, True])
def test_results_and_gradients_are_bit_for_bit_those_of_a_hand_written_module(p, amp):
    model = network()
    _, compiled = adapted(model, lora_dropout=p)
    eager = hand_written(model, compiled, p)
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        results = [seeded(m, x()) for m in (compiled, eager)]
    assert torch.equal(*results)
    for result in results:
        result.square().sum().backward()
    for i in (0, 2):
        for part in "ab":
            expected = getattr(eager[i], part).grad
            assert torch.equal(compiled.get_parameter(f"{i}.weight.lora_{part}").grad, expected)
    assert [n for n, q in compiled.named_parameters() if q.grad is not None] == [
        f"{i}.weight.lora_{part}" for i in (0, 2) for part in "ab"
    ]
    assert all(q.requires_grad and q.grad is None for q in model.parameters())
    assert torch.equal(compiled.eval()(x()), eager.eval()(x()))
    assert torch.equal(seeded(compiled.train(), x()), seeded(eager.train(), x()))


def test_training_moves_the_adapters_alone():
    model = network()
    before = copy.deepcopy(model.state_dict())
    compiled = thunder.jit(model, transforms=[LORATransform(r=4)])
    torch.testing.assert_close(compiled(x()), model(x()))  # B is zero
    optimiser = torch.optim.Adam([p for p in compiled.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(30):
        loss = (compiled(x()) - x()[:, :3].sin()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5
    assert thunder.cache_misses(compiled) == 1
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_merged_adapters_compute_the_same_and_unmerged_ones_bit_for_bit():
    lora, compiled = adapted(network())
    beside = compiled(x())
    lora.merge(compiled)
    merged = compiled(x())
    torch.testing.assert_close(merged, beside)
    assert "lora_a" not in thunder.last_traces(compiled)[-1].python()
    lora.merge(compiled)  # it is merged already
    twin = copy.deepcopy(compiled)
    lora.unmerge(compiled)
    assert torch.equal(compiled(x()), beside)
    assert torch.equal(twin(x()), merged)
    lora.merge(compiled)
    assert torch.equal(compiled(x()), merged)
    lora.unmerge(twin)
    assert torch.equal(twin(x()), beside)
    (compiled(x()).sum() + twin(x()).sum()).backward()
    assert twin.get_parameter("0.weight.lora_b").grad is not None


@pytest.mark.parametrize("merged", [False, True])
def test_adapters_are_saved_and_loaded_alone(tmp_path, merged):
    lora, compiled = adapted(network())
    torch.save(lora.adapter_state_dict(compiled), tmp_path / "adapters.pt")
    saved = torch.load(tmp_path / "adapters.pt")
    assert sorted(saved) == [f"{i}.weight.lora_{part}" for i in (0, 2) for part in "ab"]
    other = LORATransform(r=2, lora_alpha=4, merged=merged)
    loaded = thunder.jit(network(), transforms=[other])
    other.load_adapter_state_dict(loaded, saved)
    torch.testing.assert_close(loaded(x()), compiled(x()))
    other.unmerge(loaded)
    assert torch.equal(loaded(x()), compiled(x()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop("0.weight.lora_a"), "0.weight.lora_a: missing"),
        (lambda s: s.update(other=torch.ones(1)), "other: unexpected"),
        (lambda s: s.update({"0.weight.lora_b": torch.ones(2, 2)}), "in use (11, 2)"),
    ],
)
def test_wrong_adapters_are_refused_before_anything_is_loaded(change, text):
    lora, compiled = adapted(network())
    before = compiled(x())
    state = {name: torch.zeros_like(t) for name, t in lora.adapter_state_dict(compiled).items()}
    change(state)
    with pytest.raises(InvalidArgument, match="not that of these adapters") as error:
        lora.load_adapter_state_dict(compiled, state)
    assert text in str(error.value)
    assert torch.equal(compiled(x()), before)


@pytest.mark.parametrize("merged", [False, True])
def test_state_dicts_have_the_original_form(merged):
    model = network()
    lora, compiled = adapted(model)
    if merged:
        lora.merge(compiled)
    eager = network()
    eager.load_state_dict(compiled.original_state_dict())
    torch.testing.assert_close(compiled(x()), eager(x()))
    doubled = {name: 2 * t for name, t in network().state_dict().items()}
    compiled.load_original_state_dict(doubled)
    eager.load_state_dict(doubled)
    assert torch.equal(compiled(x()), eager(x()))
    assert all(torch.equal(doubled[n], t) for n, t in compiled.original_state_dict().items())
    lora.unmerge(compiled)
    assert torch.equal(compiled(x()), eager(x()))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.gate = nn.Parameter(torch.ones(4, 4))

    def forward(self, y):
        return self.out(torch.tanh(self.q_proj(y)) * self.v_proj(y)) + F.linear(y, self.gate)


@pytest.mark.parametrize(
    ("weights", "chosen"),
    [
        (("q_proj",), ["q_proj.weight"]),
        (("*_proj",), ["q_proj.weight", "v_proj.weight"]),
        (("out.weight", "gate"), ["gate", "out.weight"]),
        (lambda name, module: name != "out", ["q_proj.weight", "v_proj.weight"]),
    ],
)
def test_weights_are_chosen_by_name_wildcard_or_function(weights, chosen):
    lora, compiled = adapted(Block(), weights=weights, trainable=("out.bias",))
    compiled(torch.ones(2, 4)).sum().backward()
    trained = sorted(n for n, p in compiled.named_parameters() if p.grad is not None)
    assert trained == sorted(["out.bias", *(f"{name}.lora_{part}" for name in chosen for part in "ab")])
    assert sorted(lora.adapters) == chosen


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": 2, "lora_dropout": 1.0}, "lora_dropout is 1.0"),
        ({"r": 2, "lora_dropout": "0.1"}, "lora_dropout is '0.1'"),
        ({"r": 2, "lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"r": 2, "weights": ("k_proj",)}, "named 'k_proj'"),
        ({"r": 2, "weights": "q_proj"}, "is a string"),
        ({"r": 2, "weights": lambda name, module: False}, "chose no nn.Linear"),
        ({"r": 2, "trainable": ("q_proj.scale",)}, "no parameter of the module"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments, text):
    with pytest.raises(InvalidArgument, match=text):
        thunder.jit(Block(), transforms=[LORATransform(**arguments)])


def test_a_weight_has_the_adapters_of_one_transform():
    with pytest.raises(InvalidArgument, match="the adapters of another LORATransform"):
        thunder.jit(network(), transforms=[LORATransform(r=2), LORATransform(r=4)])
    both = [LORATransform(r=2, weights=("0",)), LORATransform(r=4, weights=("2",))]
    compiled = thunder.jit(network(), transforms=both)
    assert [len(p) for n, p in compiled.named_parameters() if n.endswith("lora_a")] == [2, 4]


def test_another_module_is_not_merged():
    lora, _ = adapted(network())
    for other in (network(), thunder.jit(network())):
        with pytest.raises(InvalidArgument, match="was not compiled with this LORATransform"):
            lora.merge(other)
    with pytest.raises(InvalidArgument, match="was not compiled with this LORATransform"):
        LORATransform(r=2).adapter_state_dict(thunder.jit(network()))


class Twice(nn.Linear):
    def forward(self, y):
        return super().forward(super().forward(y))


def test_a_layer_that_is_called_twice_is_merged():
    lora, compiled = adapted(Twice(6, 6))
    expected = compiled(x())
    lora.merge(compiled)
    torch.testing.assert_close(compiled(x()), expected)
    assert thunder.cache_misses(compiled) == 2


def test_a_parametrised_weight_is_not_computed():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)), nn.Linear(6, 3))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    lora, _ = adapted(model)
    assert list(lora.adapters) == ["1.weight"]
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


def test_a_function_has_no_weights():
    with pytest.raises(InvalidArgument, match="needs a module"):
        thunder.jit(torch.sin, transforms=[LORATransform(r=2)])


class Product(nn.Linear):
    def forward(self, y):
        return y @ self.weight.T


def test_a_weight_that_is_not_read_by_linear_is_refused():
    compiled = thunder.jit(Product(4, 4), transforms=[LORATransform(r=2)])
    with pytest.raises(UnsupportedProgram, match="the program reads weight, and not by torch"):
        compiled(torch.ones(2, 4))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class TiedHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.tied = nn.Linear(4, 4), Tied()

    def forward(self, tokens):
        return self.tied.head(self.body(self.tied.embedding(tokens)))


def test_a_weight_that_an_embedding_reads_too_has_no_adapters():
    model, tokens = TiedHead(), torch.tensor([1, 5])
    lora, compiled = adapted(model)
    compiled(tokens)
    assert list(lora.adapters) == ["body.weight"]
    assert "tied.embedding.weight" in str(thunder.explain(compiled).unchanged)
    folded = TiedHead()
    folded.load_state_dict(compiled.original_state_dict())
    torch.testing.assert_close(folded(tokens), compiled(tokens))


@pytest.mark.parametrize("choice", [("head",), ("embedding.weight",), lambda name, layer: True])
def test_a_weight_that_an_embedding_reads_too_is_refused_where_it_is_chosen(choice):
    _, compiled = adapted(Tied(), weights=choice)
    with pytest.raises(UnsupportedProgram, match=r"the program reads embedding.weight, and not by"):
        compiled(torch.tensor([1, 5]))


def test_a_module_with_nothing_but_shared_weights_is_refused():
    with pytest.raises(InvalidArgument, match=r"no nn.Linear with a weight of its own"):
        adapted(Tied())


def test_adapters_of_an_int8_model_train_and_cannot_be_folded_in():
    model = network()
    lora, compiled = adapted(model, Int8Weights(), NonFiniteDetector())
    compiled(x()).sum().backward()
    assert compiled.get_parameter("0.weight").dtype == torch.int8
    assert compiled.get_parameter("0.weight.lora_b").grad is not None
    with pytest.raises(InvalidArgument, match="stores it in another form"):
        lora.merge(compiled)


def test_a_module_on_the_meta_device_may_begin_with_merged_adapters():
    model = network()
    with torch.device("meta"):
        empty = network()
    lora = LORATransform(r=2, merged=True)
    compiled = thunder.jit(empty, transforms=[lora, MaterializationTransform("cpu", init=model.state_dict())])
    assert torch.equal(compiled(x()), model(x()))
    lora.unmerge(compiled)
    a, b = (compiled.get_parameter(f"0.weight.lora_{part}") for part in "ab")
    assert a.any()
    assert not b.any()
    nn.init.normal_(b)
    expected = compiled(x())
    lora.merge(compiled)
    torch.testing.assert_close(compiled(x()), expected)
    model.load_state_dict(compiled.original_state_dict())
    torch.testing.assert_close(model(x()), expected)


class LanguageModel(nn.Module):
    """A model with a head of its own."""

    def __init__(self, head: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.add_module(head, nn.Linear(4, 7, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return list(self.children())[-1](self.layer(x))


class WithOutputs(LanguageModel):
    """A model that says which layer is its head."""

    def get_output_embeddings(self) -> nn.Module:
        return self.unembed


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (LanguageModel("lm_head"), "lm_head"),
        (WithOutputs("unembed"), "unembed"),
        (LanguageModel("out"), None),
    ],
    ids=["by name", "by method", "none"],
)
def test_a_head_has_adapters_only_where_it_is_named(model: nn.Module, head: str | None):
    lora = LORATransform(r=2)
    compiled = thunder.jit(model, transforms=[lora])
    compiled(torch.ones(1, 4))
    assert set(lora.adapters) == {"layer.weight"} | (set() if head else {"out.weight"})
    assert [t.name for t in thunder.explain(compiled).unchanged] == ([f"{head}.weight"] if head else [])
    if head is not None:
        named = LORATransform(r=2, weights=[head])
        thunder.jit(model, transforms=[named])
        assert set(named.adapters) == {f"{head}.weight"}

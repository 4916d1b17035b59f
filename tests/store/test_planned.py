"""Plans that are saved, and used on a machine with the device."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
import thunder_store
from thunder.core.entries import TensorFacts
from thunder.plugins import DeviceProfile
from thunder_store.artefacts import Artefact, ArtefactError
from thunder_store.device_keys import keys_on_device
from thunder_store.planned import check_device
from thunder_store.reasons import NotKept, NotUsed

CPU = thunder.extend.known_profiles()["cpu"]


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "layers": lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)),
    "attention": Attention,
    "embedding": lambda: torch.nn.Sequential(torch.nn.Linear(8, 8, dtype=torch.float64), torch.nn.Tanh()),
}


def model_and_input(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = MODELS[name]()
    return model, torch.randn(2, 3, 8, dtype=next(model.parameters()).dtype)


def last_event() -> Any:
    return thunder_store.events()[-1]


@pytest.mark.parametrize("is_meta", [False, True], ids=["tensors", "meta"])
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_for_a_device_that_is_here_is_used_and_nothing_is_read_again(
    name: str, is_meta: bool, tmp_path: Path
) -> None:
    path = tmp_path / "plan.thunder"
    model, x = model_and_input(name)
    planned, like = (MODELS[name]().to("meta"), x.to("meta")) if is_meta else (model, x)
    plan = thunder.plan(
        planned, like, device=dataclasses.replace(CPU, name="another cpu"), executors=["torch"]
    )
    assert thunder.save(plan, path) == []
    compiled = thunder.load(path, model)
    result = compiled(x)
    assert last_event().kind == "hit", last_event()
    assert thunder.last_interpreted_instructions(compiled) == 0
    torch.testing.assert_close(result, model(x))
    wrt = list(model.parameters())
    grads = torch.autograd.grad(result.square().sum(), wrt)
    torch.testing.assert_close(grads, torch.autograd.grad(model(x).square().sum(), wrt))
    found, expected = (
        str(t).partition("\n")[2] for t in (thunder.last_traces(compiled)[-1], plan.traces[-1])
    )
    assert found == expected, "but for the first line, which has the time of the stage"
    rows = [(row.symbol, row.claimed_by) for row in thunder.explain(compiled).rows]
    assert rows == [(row.symbol, row.claimed_by) for row in plan.ledger.rows]


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_for_a_device_elsewhere_is_kept_as_it_was_planned(name: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.thunder"
    model, x = model_and_input(name)
    plan = thunder.plan(MODELS[name]().to("meta"), x.to("meta"), device="h100", executors=["torch"])
    thunder.save(plan, path)
    (program,) = Artefact(path).programs
    lines = program["programs"]["forward"]["text"].split("\n")
    printed = {line for line in str(plan.traces[-1]).split("\n") if not line.startswith(("#", "@"))}
    assert {line for line in lines if line.strip() and not line.startswith(("#", "from"))} <= printed
    assert "cuda:0" in "\n".join(lines)
    facts = [row for row in program["facts"] if row[0] == "prims.check_tensor"]
    assert {row[2][5] for row in facts} == {"cuda:0"}
    assert {row[2][7] for row in facts} == {
        "DispatchKeySet(CUDA, ADInplaceOrView, AutogradCUDA, AutocastCUDA)"
    }
    compiled = thunder.load(path, model)
    torch.testing.assert_close(compiled(x), model(x))
    assert last_event().reason == "it was planned for h100, and there is no cuda device here"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"capability": [9, 9]}, r"with capability \[9, 9\], and that of cpu is \[\]"),
        ({"dtypes": ["float32"]}, "with dtypes"),
        ({"features": {"lanes": 3}}, "with lanes 3, and that of cpu is 4"),
        ({"type": "cuda"}, "there is no cuda device here"),
    ],
)
def test_another_device_than_planned_is_a_reason(change: dict[str, Any], reason: str) -> None:
    here = dataclasses.replace(CPU, features={"lanes": 4, "of this machine alone": 1})
    document = {
        **{"name": "planned", "type": "cpu", "capability": [], "features": {"lanes": 4, "elsewhere": 2}},
        "dtypes": sorted(map(str, CPU.dtypes)),
    }
    with thunder.extend.assuming_device(here):
        check_device(document)
        with pytest.raises(NotUsed, match=reason):
            check_device({**document, **change})


def test_the_keys_of_a_tensor_on_a_device_are_those_that_torch_gives_it() -> None:
    made = {
        "usual": lambda device: torch.ones(2, device=device),
        "parameter": lambda device: torch.nn.Parameter(torch.ones(2, device=device)),
        "numbers": lambda device: torch.ones(2, device=device, dtype=torch.int64),
    }
    for make, is_inference in itertools.product(made.values(), (False, True)):
        with torch.inference_mode(is_inference):
            meta, cpu = make("meta"), make("cpu")
        facts = TensorFacts(
            *(torch.Tensor, (2,), (1,), torch.float32, torch.device("cpu"), False),
            str(torch._C._dispatch_keys(meta)),
        )
        assert keys_on_device(facts) == str(torch._C._dispatch_keys(cpu))
        moved = dataclasses.replace(facts, device=torch.device("cuda", 0))
        assert keys_on_device(moved) == str(torch._C._dispatch_keys(cpu)).replace("CPU", "CUDA")
    negative = str(torch._C._dispatch_keys(torch._neg_view(torch.ones(2))))
    with pytest.raises(NotKept, match="Negative"):
        keys_on_device(dataclasses.replace(facts, dispatch_keys=negative, device=torch.device("cuda", 0)))


def test_a_program_that_reads_the_name_of_the_device_is_not_saved(tmp_path: Path) -> None:
    def by_name(x: Any) -> Any:
        return x * 2 if torch.cuda.get_device_name() == "h100" else x

    def by_capability(x: Any) -> Any:
        return x * 2 if torch.cuda.get_device_capability() >= (9, 0) else x

    x = torch.ones(2)
    with pytest.raises(ArtefactError, match="get_device_name"):
        thunder.save(thunder.plan(by_name, x, device="h100"), tmp_path / "plan")
    assert thunder.save(thunder.plan(by_capability, x, device="h100"), tmp_path / "plan") == []


def test_what_is_no_plan_of_one_program_is_refused(tmp_path: Path) -> None:
    model, x = model_and_input("layers")
    plan = thunder.plan(model, x)
    with pytest.raises(ArtefactError, match="another kind"):
        thunder.save(dataclasses.replace(plan, origin=None), tmp_path / "plan")
    with pytest.raises(ArtefactError, match="no values of weights"):
        thunder.save(plan, tmp_path / "plan", weights=True)
    assert thunder.save(plan, tmp_path / "plan") == []
    torch.testing.assert_close(thunder.load(tmp_path / "plan", model)(x), model(x))
    assert last_event().kind == "hit"


def test_a_device_of_a_package_is_one_that_can_be_planned(tmp_path: Path) -> None:
    device = DeviceProfile(
        name="own", type="xpu", capability=(), memory_bytes=None, dtypes=CPU.dtypes, features={}
    )
    with pytest.raises(ArtefactError, match="device: a tensor with the keys"):
        thunder.save(
            thunder.plan(torch.sin, torch.ones(2), device=device, executors=["torch"]), tmp_path / "plan"
        )

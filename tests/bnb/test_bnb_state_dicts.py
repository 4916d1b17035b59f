"""State dicts of stored weights, in both forms, saved and loaded in another process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import thunder
from bnb.quantised_modules import TRANSFORMS, compiled, network
from new_processes import run_python
from thunder.core.errors import InvalidArgument
from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit

every_kind = pytest.mark.parametrize("kind", TRANSFORMS)


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_is_computed_from_a_stored_form_is_stored_in_the_same_form(kind: str, dtype: torch.dtype):
    """Double quantisation is the exception: the mean of the computed magnitudes is another."""
    module = compiled(kind, network(dtype))
    stored, original = module.state_dict(), module.original_state_dict()
    assert {name: t.shape for name, t in original.items()} == {
        name: t.shape for name, t in network().state_dict().items()
    }
    module.load_original_state_dict(original)
    again = module.state_dict()
    if kind == "nf4 twice":
        torch.testing.assert_close(module.original_state_dict(), original, rtol=0.02, atol=0.02)
    else:
        assert equal(again, stored)


@every_kind
def test_an_original_state_dict_gives_what_compiling_gives(kind: str):
    torch.manual_seed(1)
    other = network()
    for p in other.parameters():
        p.copy_(torch.randn(p.shape))
    module = compiled(kind, network())
    module.load_original_state_dict(other.state_dict())
    assert equal(module.state_dict(), compiled(kind, other).state_dict())
    assert torch.equal(module(torch.ones(2, 128)), compiled(kind, other)(torch.ones(2, 128)))


LOAD = """
import sys
import torch
from safetensors.torch import load_file
from bnb.quantised_modules import compiled, network

folder = sys.argv[1]
model = network()
for p in model.parameters():
    p.zero_()
for kind in sys.argv[2:]:
    module = compiled(kind, model)
    module.load_state_dict(torch.load(f"{folder}/{kind}.pt"))
    results = [module(torch.ones(2, 128))]
    module = compiled(kind, model)
    module.load_state_dict(load_file(f"{folder}/{kind}.safetensors"))
    results.append(module(torch.ones(2, 128)))
    assert all(torch.equal(r, torch.load(f"{folder}/{kind}.result")) for r in results)
    plain = network()
    plain.load_state_dict(module.original_state_dict())
print("equal")
"""


def test_both_kinds_of_files_are_loaded_in_another_process(tmp_path: Path):
    kinds = ["nf4 twice", "int8"]
    for kind in kinds:
        module = compiled(kind, network())
        torch.save(module.state_dict(), tmp_path / f"{kind}.pt")
        save_file(module.state_dict(), tmp_path / f"{kind}.safetensors")
        torch.save(module(torch.ones(2, 128)), tmp_path / f"{kind}.result")
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    run = run_python("-c", LOAD, str(tmp_path), *kinds, env=environment)
    assert run.stdout == "equal\n", run.stderr


def test_a_state_dict_of_the_other_type_is_an_error():
    fp4 = thunder.jit(network(), transforms=BitsAndBytesLinearQuant4bit("fp4"))
    nf4 = compiled("nf4", network())
    x = torch.ones(2, 128)
    expected = nf4(x)
    good = {name: tensor.clone() for name, tensor in nf4.state_dict().items()}
    nf4.load_state_dict(fp4.state_dict())
    with pytest.raises(InvalidArgument, match="not stored in nf4: its 16 values are others"):
        nf4(x)
    nf4.load_state_dict(good)
    assert torch.equal(nf4(x), expected)


def test_a_checkpoint_of_another_dtype_is_converted_before_it_is_stored():
    half = {name: tensor.half() for name, tensor in network().state_dict().items()}
    module, plain = compiled("nf4", network()), network()
    module.load_original_state_dict(half)
    plain.load_state_dict(half)
    assert equal(module.state_dict(), compiled("nf4", plain).state_dict())


def test_a_weight_of_another_shape_is_an_error():
    state = {**network().state_dict(), "0.weight": torch.ones(2, 2)}
    with pytest.raises(thunder.ThunderError, match=r"0\.weight of the state dict has another shape"):
        compiled("nf4", network()).load_original_state_dict(state)


@every_kind
def test_a_module_on_the_meta_device_is_stored_as_its_checkpoint_is_loaded(kind: str):
    expected = compiled(kind, network())
    with torch.device("meta"):
        empty = network()
    module = compiled(kind, empty)
    forms = {name: (t.shape, t.dtype) for name, t in expected.state_dict().items()}
    assert {name: (t.shape, t.dtype) for name, t in module.state_dict().items()} == forms
    assert all(tensor.is_meta for tensor in module.overrides.values())
    module.load_original_state_dict(network().state_dict(), assign=True)
    assert equal(module.state_dict(), expected.state_dict())
    assert torch.equal(module(torch.ones(2, 128)), expected(torch.ones(2, 128)))

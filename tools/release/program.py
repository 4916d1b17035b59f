"""What a release check runs where packages are installed: `python program.py DISTRIBUTION MODULE …`.

It runs in an environment that has these packages and their requirements, and nothing of the repository.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points, requires

import torch

import thunder
from thunder.plugins import PluginState, list_plugins

assert thunder.__file__ is not None, "thunder is a package with an __init__.py"
assert thunder.__file__.startswith(sys.prefix), f"thunder is imported from {thunder.__file__}"
assert requires("thunder-core"), "thunder-core is installed, with requirements"


def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a loss: a product, a scaled maximum, a branch on a shape."""
    y = torch.nn.functional.gelu(x @ w)
    return (y * y.shape[0]).sum() if y.ndim == 2 else y.sum()


def compiles_and_trains() -> None:
    """Compare a function and a module with eager: values, gradients, a second shape."""
    torch.manual_seed(0)
    compiled = thunder.jit(function)
    for rows in (4, 5, 4):
        x, w = torch.randn(rows, 3), torch.randn(3, 2, requires_grad=True)
        torch.testing.assert_close(compiled(x, w), function(x, w))
        (one,) = torch.autograd.grad(compiled(x, w), w)
        (other,) = torch.autograd.grad(function(x, w), w)
        torch.testing.assert_close(one, other)
    assert thunder.last_traces(compiled), "the traces of the last compile"
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    module, x = thunder.jit(model), torch.randn(4, 3)
    torch.testing.assert_close(module(x), model(x))
    module(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters()), "each parameter has a gradient"


def plugins_are_loaded(packages: set[str]) -> None:
    """Require that each plugin of these packages loads; a library that it needs may be absent."""
    here = {info.name: info for info in list_plugins()}
    for entry in entry_points(group="thunder.plugins"):
        if entry.dist is not None and entry.dist.name in packages:
            info = here[entry.name]
            assert info.state in (PluginState.LOADED, PluginState.UNAVAILABLE), f"{info.name}: {info.reason}"


def main(package: str, *modules: str) -> None:
    """Import the modules, load the plugins, compile and train."""
    for module in modules:
        file = importlib.import_module(module).__file__
        assert str(file).startswith(sys.prefix), f"{module} is imported from {file}"
    plugins_are_loaded(set(package.split(",")))
    compiles_and_trains()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Scripts that run one graph of TorchDynamo by itself, in eager and in thunder."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx.graph_module import _format_import_block
from torch.package.importer import sys_importer

from thunder.core.errors import InvalidArgument

from .function_modules import FunctionModule
from .region_modules import CheckpointedBody

__all__ = ["ArgumentDescription", "described_arguments", "write_reproducer"]


@dataclass(frozen=True, kw_only=True)
class ArgumentDescription:
    """Metadata of a tensor that a graph was compiled for, and a weak reference to it.

    `shape` and `strides` are in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    tensor: weakref.ref[torch.Tensor]

    def source(self) -> str:
        """Return an expression that makes a random tensor with these metadata.

        Integers are within the range of those of the tensor, if it still exists, because they may be indices.
        """
        low, high = self._range()
        return (
            f"random_tensor({self.shape}, {self.strides}, {self.dtype}, {str(self.device)!r}, "
            f"{self.requires_grad}, {low}, {high})"
        )

    def _range(self) -> tuple[int, int]:
        tensor = self.tensor()
        if self.dtype.is_floating_point or self.dtype.is_complex or tensor is None or not tensor.numel():
            return 0, 1
        return int(tensor.min()), int(tensor.max())


def described_arguments(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a graph with descriptions in place of tensors, which they do not keep alive."""
    return tuple(_described(argument) for argument in arguments)


def _described(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument.node.hint if isinstance(argument, torch.SymInt | torch.SymFloat) else argument
    return ArgumentDescription(
        shape=tuple(map(int, argument.shape)),
        strides=tuple(map(int, argument.stride())) if argument.layout is torch.strided else (),
        dtype=argument.dtype,
        device=argument.device,
        requires_grad=argument.requires_grad,
        tensor=weakref.ref(argument),
    )


def write_reproducer(
    folder: Path,
    index: int,
    gm: torch.fx.GraphModule,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    *,
    as_benchmark: bool,
    with_inputs: bool,
) -> Path:
    """Write `graph<index>.py` into a folder, and beside it what the script loads; return its path.

    Raises InvalidArgument if inputs are to be saved and a tensor does not exist any more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"graph{index}.py"
    inputs = path.with_suffix(".inputs.pt")
    classes, imports, attributes = _classes(gm, f"Graph{index}")
    if attributes:
        torch.save(attributes, path.with_suffix(".attributes.pt"))
    if with_inputs:
        torch.save([_tensor(argument, i) for i, argument in enumerate(arguments)], inputs)
        listed = f"    return torch.load(Path(__file__).with_name({inputs.name!r}), weights_only=False)"
    else:
        lines = (
            argument.source() if isinstance(argument, ArgumentDescription) else repr(argument)
            for argument in arguments
        )
        listed = "\n".join(("    return [", *(f"        {line}," for line in lines), "    ]"))
    text = _SCRIPT.format(
        imports="\n".join(sorted(imports)),
        classes="\n\n\n".join(classes),
        inputs=listed,
        options=_options(options),
        graph=f"Graph{index}",
        main=(_BENCHMARK if as_benchmark else _COMPARISON).format(graph=f"Graph{index}"),
    )
    path.write_text(text, encoding="utf-8")
    return path


def _tensor(argument: Any, position: int) -> Any:
    if not isinstance(argument, ArgumentDescription):
        return argument
    tensor = argument.tensor()
    if tensor is None:
        raise InvalidArgument(
            f"save_reproducer_to_folder cannot save input {position}, which does not exist any more",
            found={"shape": argument.shape},
            hint="Keep the inputs of the first call until then, or write serialize_inputs=False.",
        )
    return tensor.detach().requires_grad_(argument.requires_grad)


def _options(options: Mapping[str, Any]) -> str:
    """Return the options of `thunder.jit` as arguments; what cannot be written is a comment."""
    lines = []
    for name, value in options.items():
        if name == "executors" and value is not None:
            several = value if isinstance(value, list | tuple) else [value]
            value = [item if isinstance(item, str) else item.name for item in several]
        literal = isinstance(value, str | int | float | list | tuple | type(None))
        lines.append(f"    {'' if literal else '# '}{name}={value!r},")
    return "\n".join(lines)


# -- modules as classes


def _classes(module: torch.nn.Module, name: str) -> tuple[list[str], set[str], dict[str, Any]]:
    """Return the classes of a graph and of its subgraphs, their imports, and attributes that are loaded."""
    classes: list[str] = []
    imports: set[str] = set()
    attributes: dict[str, Any] = {}
    setup: list[str] = []
    for key, value in (*module._parameters.items(), *module._buffers.items()):
        setup.append(f"        self.{key} = ATTRIBUTES[{f'{name}.{key}'!r}]")
        attributes[f"{name}.{key}"] = value
    for key, child in module.named_children():
        if isinstance(child, torch.fx.GraphModule | CheckpointedBody):
            child_name = f"{name}_{key}"
            inner, inner_imports, inner_attributes = _classes(child, child_name)
            classes += inner
            imports |= inner_imports
            attributes |= inner_attributes
            setup.append(f"        self.{key} = {child_name}()")
        elif isinstance(child, FunctionModule):
            bodies = []
            for part, body in child.named_children():
                inner, inner_imports, inner_attributes = _classes(body, f"{name}_{key}_{part}")
                classes += inner
                imports |= inner_imports
                attributes |= inner_attributes
                bodies.append(f"{name}_{key}_{part}()")
            settings = f"{child.not_differentiable}, {child.saved_tensors}"
            setup.append(f"        self.{key} = FunctionModule({', '.join(bodies)}, {settings})")
            imports.add("from thunder_inductor.dynamo.function_modules import FunctionModule")
        else:
            setup.append(f"        self.{key} = ATTRIBUTES[{f'{name}.{key}'!r}]")
            attributes[f"{name}.{key}"] = child
    if isinstance(module, CheckpointedBody):
        forward = _CHECKPOINTED.format(settings=", ".join(f"{k}={v!r}" for k, v in module.settings.items()))
    else:
        assert isinstance(module, torch.fx.GraphModule), f"{name} is a {type(module).__name__}"
        code = module.graph.python_code("self")
        imports |= set(_format_import_block(code.globals, sys_importer).splitlines())
        forward = "\n".join(f"    {line}".rstrip() for line in code.src.strip().splitlines())
    init = ["    def __init__(self):", "        super().__init__()", *setup]
    classes.append("\n".join((f"class {name}(torch.nn.Module):", *init, "", forward)))
    return classes, imports, attributes


_CHECKPOINTED = """\
    def forward(self, *args):
        return torch.utils.checkpoint.checkpoint(self.body, *args, {settings})"""

_SCRIPT = '''\
"""One graph of TorchDynamo, in eager and in thunder."""

from pathlib import Path

import torch
import torch.utils.checkpoint
{imports}

from thunder.dynamo import ThunderCompiler

STORED = Path(__file__).with_suffix(".attributes.pt")
ATTRIBUTES = torch.load(STORED, weights_only=False) if STORED.exists() else {{}}


def random_tensor(shape, strides, dtype, device, requires_grad, low, high):
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides)) if 0 not in shape else 0
    if dtype.is_floating_point or dtype.is_complex:
        memory = torch.randn(size, dtype=torch.float32, device=device).to(dtype)
    else:
        memory = torch.randint(low, high + 1, (size,), device=device).to(dtype)
    return memory.as_strided(shape, strides).detach().requires_grad_(requires_grad)


{classes}


def inputs():
{inputs}


BACKEND = ThunderCompiler(
{options}
)


def compiled_graph():
    return torch.compile({graph}(), backend=BACKEND)


{main}
'''

_COMPARISON = """\
def main():
    arguments = inputs()
    copies = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
              for x in arguments]
    torch.manual_seed(0)
    expected = {graph}()(*copies)
    torch.manual_seed(0)
    actual = compiled_graph()(*arguments)
    torch.testing.assert_close(actual, expected)
    for info in BACKEND.subgraph_infos:
        print(info)
    print("thunder and eager agree")


if __name__ == "__main__":
    main()"""

_BENCHMARK = """\
def test_eager(benchmark):
    graph, arguments = {graph}(), inputs()
    benchmark(lambda: graph(*arguments))


def test_thunder(benchmark):
    graph, arguments = compiled_graph(), inputs()
    graph(*arguments)
    benchmark(lambda: graph(*arguments))"""

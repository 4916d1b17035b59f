"""Stacks of blocks that are equal but for one thing, and programs that read them in unusual ways.

A block is read once, and what was read is copied for the others (Note [Equal modules]): each program here is
one for which a copy would be wrong, or right only if it is made with care.
"""

from __future__ import annotations

import contextvars
import functools
import random
import threading
import types
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH: Final = 4


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale, self.shift, self.name = 2, 0.5, "inner"
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.options = {"clip": None}
        self.activation: Callable[[Tensor], Tensor] = torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.linear(x)) * self.scale + self.shift - self.mean
        return y if self.training else y * 1.5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), Inner()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.gate: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.norm(x))
        if self.gate is not None:
            y = y * self.gate
        return x + y * self.weight


class OtherBlock(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 3


class Stack(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def stack(count: int = 4) -> Any:
    torch.manual_seed(0)
    model = Stack(count)
    for parameter in model.parameters():
        parameter.data.uniform_(0.5, 1.5)
    return model


# -- one block is different ----------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Any, Any], Any]] = {}
"""Functions of a stack and of one of its blocks."""


def change(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    CHANGES[function.__name__] = function
    return function


@change
def nothing(model: Any, block: Any) -> None:
    pass


@change
def a_number(model: Any, block: Any) -> None:
    block.inner.scale = 3


@change
def a_type_of_number(model: Any, block: Any) -> None:
    block.inner.scale = 2.0


@change
def a_float(model: Any, block: Any) -> None:
    block.inner.shift = -0.5


@change
def a_number_by_a_tensor(model: Any, block: Any) -> None:
    block.inner.shift = torch.full((WIDTH,), 0.25)


@change
def a_function(model: Any, block: Any) -> None:
    block.inner.activation = torch.sigmoid


@change
def a_function_by_a_module(model: Any, block: Any) -> None:
    block.inner.activation = nn.SiLU()


@change
def a_gate(model: Any, block: Any) -> None:
    block.gate = torch.full((WIDTH,), 0.1)


@change
def a_method_of_the_instance(model: Any, block: Any) -> None:
    block.inner.forward = lambda x: x * 7


@change
def a_class(model: Any, block: Any) -> None:
    block.__class__ = OtherBlock


@change
def a_forward_hook(model: Any, block: Any) -> None:
    block.inner.register_forward_hook(lambda module, args, output: output * 2)


@change
def a_forward_pre_hook(model: Any, block: Any) -> None:
    block.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


@change
def no_bias(model: Any, block: Any) -> None:
    block.inner.linear.bias = None


@change
def another_submodule(model: Any, block: Any) -> None:
    block.norm = nn.Identity()


@change
def a_sequence_of_submodules(model: Any, block: Any) -> None:
    block.norm = nn.Sequential(block.norm, nn.ReLU())


@change
def evaluation(model: Any, block: Any) -> None:
    block.inner.eval()


@change
def no_gradient(model: Any, block: Any) -> None:
    block.inner.linear.weight.requires_grad_(False)


@change
def another_dtype(model: Any, block: Any) -> None:
    block.inner.mean = block.inner.mean.double()


@change
def another_shape(model: Any, block: Any) -> None:
    block.inner.mean = torch.ones(1)


@change
def other_strides(model: Any, block: Any) -> None:
    block.inner.linear.weight = nn.Parameter(torch.linspace(0, 1, WIDTH**2).reshape(WIDTH, WIDTH).t())


@change
def a_part_of_storage(model: Any, block: Any) -> None:
    block.inner.mean = torch.arange(2.0 * WIDTH)[WIDTH:]


@change
def a_tensor_that_is_no_leaf(model: Any, block: Any) -> None:
    block.inner.mean = torch.ones(WIDTH, requires_grad=True) * 2


@change
def a_buffer_for_a_parameter(model: Any, block: Any) -> None:
    weight = block.weight.detach()
    del block.weight
    block.register_buffer("weight", weight)


@change
def a_shared_parameter(model: Any, block: Any) -> None:
    block.inner.linear.weight = model.blocks[0].inner.linear.weight


@change
def a_shared_module(model: Any, block: Any) -> None:
    block.inner = model.blocks[0].inner


@change
def one_parameter_twice(model: Any, block: Any) -> None:
    block.norm.weight = block.weight


@change
def one_module_for_all(model: Any, block: Any) -> None:
    for other in model.blocks:
        other.inner = block.inner


@change
def the_same_block_again(model: Any, block: Any) -> None:
    model.blocks.append(model.blocks[0])


@change
def an_attribute_in_the_place_of_a_module(model: Any, block: Any) -> None:
    block.__dict__["norm"] = functional.relu


@change
def a_module_with_a_getter(model: Any, block: Any) -> None:
    class Getting(Inner):
        @property
        def scale(self) -> int:
            return 5

        @scale.setter
        def scale(self, value: int) -> None:
            pass

    block.inner.__class__ = Getting


# -- the program does more than to read ----------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[Any], Callable[[Tensor], Any]]] = {}
"""Functions of a stack that return a program on a tensor."""


def program(make: Callable[[Any], Callable[[Tensor], Any]]) -> Callable[[Any], Callable[[Tensor], Any]]:
    PROGRAMS[make.__name__] = make
    return make


def with_forward(model: Any, forward: Callable[..., Any]) -> Any:
    """Return the stack, of which all blocks have a class with another ``forward``."""
    cls = type("Changed", (Block,), {"forward": forward})
    for block in model.blocks:
        block.__class__ = cls
    return model


@program
def a_counter_of_the_class(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        type(self).calls += 1
        return Block.forward(self, x) * type(self).calls

    with_forward(model, forward)
    type(model.blocks[0]).calls = 0  # type: ignore[attr-defined]
    return model


class Shared:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@program
def a_counter_of_a_shared_object(model: Any) -> Any:
    shared = Shared(calls=0)

    def forward(self: Any, x: Tensor) -> Tensor:
        self.shared.calls += 1
        return Block.forward(self, x) * self.shared.calls

    for block in model.blocks:
        block.shared = shared
    return with_forward(model, forward)


@program
def a_counter_of_a_closure(model: Any) -> Any:
    calls = 0

    def forward(self: Any, x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return Block.forward(self, x) * calls

    return with_forward(model, forward)


@program
def a_list_that_grows(model: Any) -> Any:
    seen: list[int] = []

    def forward(self: Any, x: Tensor) -> Tensor:
        seen.append(1)
        return Block.forward(self, x) * len(seen)

    return with_forward(model, forward)


@program
def a_dictionary_by_module(model: Any) -> Any:
    factors = {block: float(i) for i, block in enumerate(model.blocks)}

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * factors[self]

    return with_forward(model, forward)


@program
def a_dictionary_by_a_tuple_with_the_module(model: Any) -> Any:
    factors = {(block, 1): float(i) for i, block in enumerate(model.blocks)}

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * factors[self, 1]

    return with_forward(model, forward)


@program
def a_list_of_modules(model: Any) -> Any:
    special = [model.blocks[2]]

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (3.0 if self in special else 1.0)

    return with_forward(model, forward)


@program
def a_comparison_with_a_module(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (3.0 if self is model.blocks[1] else 1.0)

    return with_forward(model, forward)


@program
def the_identity_of_a_module(model: Any) -> Any:
    marked = id(model.blocks[3])

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (3.0 if id(self) == marked else 1.0)

    return with_forward(model, forward)


@program
def an_iterator_of_the_program(model: Any) -> Any:
    def forward(self: Any, x: Tensor, factors: Any) -> Tensor:
        return Block.forward(self, x) * next(factors)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        factors = iter([1.0, 2.0, 3.0, 4.0])
        for block in model.blocks:
            x = block(x, factors)
        return x

    return run


@program
def an_iterator_in_an_object(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        for factor in self.shared.factors:
            return Block.forward(self, x) * factor
        return x

    shared = Shared()
    for block in model.blocks:
        block.shared = shared
    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        shared.factors = (n * 2.0 for n in range(1, 5))  # type: ignore[attr-defined]
        for block in model.blocks:
            x = block(x)
        del shared.factors  # type: ignore[attr-defined]
        return x

    return run


@program
def random_numbers(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * random.random()

    model = with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        return model(x) * 0 + len(model.blocks)

    return run


@program
def noise(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return functional.dropout(Block.forward(self, x), 0.5) + torch.rand(WIDTH)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return model(x)

    return run


@program
def the_first_value_in_a_dictionary(model: Any) -> Any:
    def forward(self: Any, x: Tensor, kept: dict[str, Tensor]) -> Tensor:
        return Block.forward(self, x) + kept["first"] * 2

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        x = x * 2
        kept = {"first": x}
        for block in model.blocks:
            x = block(x, kept)
        return x

    return run


@program
def the_first_value_in_an_attribute(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) + self.shared.first * 2

    shared = Shared()
    for block in model.blocks:
        block.shared = shared
    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        x = x * 2
        shared.first = x  # type: ignore[attr-defined]
        for block in model.blocks:
            x = block(x)
        return x

    return run


@program
def the_first_value_in_a_list(model: Any) -> Any:
    kept: list[Tensor] = []

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) + kept[-1] * 2

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        x = x * 2
        kept.append(x)
        for block in model.blocks:
            x = block(x)
        kept.clear()
        return x

    return run


@program
def the_first_value_twice(model: Any) -> Any:
    def forward(self: Any, x: Tensor, first: Tensor) -> Tensor:
        return Block.forward(self, x) + first * 2 if first is not x else Block.forward(self, x)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        first = x = x * 2
        for block in model.blocks:
            x = block(x, first)
        return x

    return run


@program
def a_parameter_of_a_block_as_an_argument(model: Any) -> Any:
    def forward(self: Any, x: Tensor, weight: Tensor) -> Tensor:
        return Block.forward(self, x) * (2.0 if weight is self.weight else 1.0)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        for block in model.blocks:
            x = block(x, model.blocks[0].weight)
        for block in model.blocks:
            x = block(x, model.blocks[2].weight)
        return x

    return run


@program
def a_block_as_an_argument(model: Any) -> Any:
    def forward(self: Any, x: Tensor, other: Any) -> Tensor:
        return Block.forward(self, x) * (2.0 if other is self else 1.0) + other.inner(x)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        for block in model.blocks:
            x = block(x, model.blocks[0])
        return x

    return run


@program
def autocast_around_one_block(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        for i, block in enumerate(model.blocks):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=i == 1):
                x = block(x).float()
        return x

    return run


@program
def no_gradients_in_one_block(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        for i, block in enumerate(model.blocks):
            with torch.set_grad_enabled(i != 2):
                x = block(x)
        return x

    return run


@program
def a_question_about_gradients(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (2.0 if torch.is_grad_enabled() and x.requires_grad else 1.0)

    with_forward(model, forward)
    for parameter in [*model.blocks[0].parameters(), *model.blocks[1].parameters()]:
        parameter.requires_grad_(False)
    return model


@program
def leaves_and_others(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (2.0 if x.is_leaf else 1.0)

    return with_forward(model, forward)


@program
def questions_about_strides(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * (2.0 if x.is_contiguous() else 1.0) * x.stride(0)

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        x = (x @ x.t() + 1).t() @ x
        return model(x.t().contiguous().t() if x.shape[0] == WIDTH else x)

    return run


@program
def views_by_strides(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x).t().reshape(-1).reshape(WIDTH, -1).t()

    return with_forward(model, forward)


@program
def answers_of_data(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = Block.forward(self, x)
        return y / y.abs().sum() if y.sum() > 0 else y

    return with_forward(model, forward)


@program
def numbers_of_data(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) / x.abs().max().item()

    return with_forward(model, forward)


@program
def an_error_in_one_block(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.cat([Block.forward(self, x), self.inner.mean[None]]) if self.gate is None else x

    with_forward(model, forward)
    model.blocks[2].inner.mean = torch.zeros(WIDTH + 1)

    def run(x: Tensor) -> Any:
        for block in model.blocks:
            try:
                x = block(x)
            except RuntimeError:
                x = x * 11
        return x

    return run


@program
def batch_norms(model: Any) -> Any:
    norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(3))

    def run(x: Tensor) -> Tensor:
        for norm in norms:
            x = norm(x)
        return model(x) + sum(norm.num_batches_tracked for norm in norms)

    return run


@program
def writes_to_buffers(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.inner.mean.add_(1)
        y = Block.forward(self, x)
        self.inner.mean = self.inner.mean * 2
        return y

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        return model(model(x))

    return run


@program
def writes_before_the_calls(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        model.blocks[2].inner.scale = 5
        model.blocks[1].inner.mean = x[0]
        return model(x)

    return run


@program
def attributes_that_are_read_before(model: Any) -> Any:
    model.blocks[0].inner.scale = 2

    def run(x: Tensor) -> Tensor:
        first = model.blocks[0].inner.scale + model.blocks[0].weight.sum()
        return model(x) * first + vars(model.blocks[3].inner)["scale"]

    return run


@program
def the_same_block_many_times(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        for _ in range(4):
            x = model.blocks[0](x)
        return x

    return run


@program
def keyword_arguments(model: Any) -> Any:
    def forward(self: Any, x: Tensor, factor: float = 2.0, *, power: int = 1, flag: bool = False) -> Tensor:
        return Block.forward(self, x) * factor**power + flag

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        first, second, third, fourth = model.blocks
        x = second(first(x, 2.0), factor=3.0)
        return fourth(third(x, power=2), flag=True) + first(x, 2) + first(x, power=True)

    return run


@program
def a_checkpointed_block(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return model(x)

    return run


@program
def mapped_blocks(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        return torch.vmap(model.blocks[1])(model.blocks[0](x)) + model(x)

    return run


@program
def closures_and_comprehensions(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        parts = [Block.forward(self, x) * n for n in range(1, 3)]

        def added(y: Tensor) -> Tensor:
            return y + parts[0] * self.inner.scale

        return functools.reduce(torch.add, map(added, parts))

    return with_forward(model, forward)


@program
def results_that_are_shared(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Any:
        y = Block.forward(self, x)
        return y, x, (y, self.weight, None, 1.5)

    with_forward(model, forward)

    def run(x: Tensor) -> Any:
        results = []
        for block in model.blocks:
            x, before, rest = block(x)
            results.append(before.sum() + rest[0].sum() * rest[3] + rest[1].sum())
        return x, results

    return run


VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=1.0)


@program
def variables_of_a_context(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * VARIABLE.get()

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        for i, block in enumerate(model.blocks):
            token = VARIABLE.set(float(i))
            x = block(x)
            VARIABLE.reset(token)
        return x

    return run


@program
def variables_of_a_thread(model: Any) -> Any:
    local = threading.local()
    local.depth = 0

    def forward(self: Any, x: Tensor) -> Tensor:
        local.depth += 1
        return Block.forward(self, x) * local.depth

    return with_forward(model, forward)


@program
def an_object_of_the_program(model: Any) -> Any:
    def forward(self: Any, x: Tensor, state: Any) -> Tensor:
        state.calls += 1
        return Block.forward(self, x) * state.calls

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        state = types.SimpleNamespace(calls=0)
        for block in model.blocks:
            x = block(x, state)
        return x * state.calls

    return run


@program
def a_list_of_the_program(model: Any) -> Any:
    def forward(self: Any, x: Tensor, states: list[Tensor]) -> Tensor:
        y = Block.forward(self, x)
        states.append(y)
        return y + states[0]

    with_forward(model, forward)

    def run(x: Tensor) -> Any:
        states: list[Tensor] = []
        for block in model.blocks:
            x = block(x, states)
        return x, states

    return run


@program
def dtypes_that_change(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        for i, block in enumerate(model.blocks):
            x = block(x.double().float() if i % 2 else x) * 2
        with torch.no_grad():
            return model(x.detach()) + x

    return run


@program
def gradients_inside(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        y = model(x)
        (g,) = torch.autograd.grad(y.sum(), model.blocks[1].weight, create_graph=False)
        return model(x) * g

    return run


@program
def hooks_of_tensors(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = Block.forward(self, x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * 2)
        return y

    return with_forward(model, forward)


@program
def depths_by_recursion(model: Any) -> Any:
    def forward(self: Any, x: Tensor, others: Any = ()) -> Tensor:
        x = Block.forward(self, x)
        return others[0](x, others[1:]) if others else x

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        return model.blocks[0](x, tuple(model.blocks)[1:])

    return run


# -- a block is reached by another way than its call ---------------------------------------------------------


@program
def the_parameter_of_one_block(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * model.blocks[1].weight + model.blocks[2].inner.scale

    return with_forward(model, forward)


@program
def a_submodule_by_its_name(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * model.get_submodule("blocks.1").weight

    return with_forward(model, forward)


@program
def a_block_in_a_closure(model: Any) -> Any:
    special = model.blocks[1]

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * special.weight + special.inner.shift

    return with_forward(model, forward)


@program
def a_part_of_a_block_in_a_closure(model: Any) -> Any:
    special, weight = model.blocks[1].inner, model.blocks[2].weight

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * special.linear.bias + weight

    return with_forward(model, forward)


@program
def a_reference_to_the_stack(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * self.owners[0].blocks[1].weight

    for block in model.blocks:
        block.owners = [model]
    return with_forward(model, forward)


@program
def a_table_of_blocks(model: Any) -> Any:
    table = {"first": model.blocks[0], "second": model.blocks[1]}

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * table["second"].weight

    return with_forward(model, forward)


@program
def a_block_that_a_class_holds(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * self.leader.weight

    with_forward(model, forward)
    model.blocks[0].__class__.leader = model.blocks[1]
    return model


@program
def a_block_that_a_default_holds(model: Any) -> Any:
    leader = model.blocks[1]

    def forward(self: Any, x: Tensor, other: Any = leader) -> Tensor:
        return Block.forward(self, x) * other.weight

    del leader
    return with_forward(model, forward)


@program
def the_block_that_runs_now(model: Any) -> Any:
    shared = Shared(current=None)

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * shared.current.weight + shared.current.inner.scale

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        shared.current = model.blocks[1]  # type: ignore[attr-defined]
        for block in model.blocks:
            x = block(x)
        for block in model.blocks:
            shared.current = block  # type: ignore[attr-defined]
            x = block(x)
        shared.current = None  # type: ignore[attr-defined]
        return x

    return run


@program
def the_next_block(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * self.__dict__["next"].weight

    blocks = list(model.blocks)
    for block, following in zip(blocks, [*blocks[1:], blocks[1]], strict=True):
        block.__dict__["next"] = following
    return with_forward(model, forward)


@program
def the_parameters_of_a_block(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        norm = sum(p.square().sum() for p in self.parameters())
        return Block.forward(self, x) / norm * len(self.state_dict())

    return with_forward(model, forward)


@program
def depths_that_the_stack_counts(model: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) * model.depth

    with_forward(model, forward)

    def run(x: Tensor) -> Tensor:
        for depth, block in enumerate(model.blocks):
            model.depth = depth
            x = block(x)
        del model.depth
        return x

    return run


@program
def layers_of_torch(model: Any) -> Any:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    parts = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)) for _ in range(3)]
    for i, parameter in enumerate([*encoder.parameters(), *nn.Sequential(*parts).parameters()]):
        parameter.data.copy_(torch.linspace(-0.5, 0.6 + i / 50, parameter.numel()).reshape(parameter.shape))
    sequence = nn.Sequential(*parts)

    def run(x: Tensor) -> Tensor:
        return sequence(encoder(x[None])[0])

    return run


@program
def recurrent_cells(model: Any) -> Any:
    torch.manual_seed(1)
    cells = nn.ModuleList(nn.GRUCell(WIDTH, WIDTH) for _ in range(3))

    def run(x: Tensor) -> Tensor:
        state = torch.zeros(WIDTH)
        for row in x.unbind(0):
            for cell in cells:
                state = cell(row, state)
        return state

    return run


@program
def a_block_with_two_widths(model: Any) -> Any:
    def run(x: Tensor) -> Any:
        return [block(part) for part in (x, x[:1], x[:2]) for block in model.blocks]

    return run


@program
def a_parameter_that_the_program_writes(model: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            model.blocks[2].inner.linear.weight.mul_(0.5)
            model.blocks[1].inner.mean.copy_(x[0])
        return model(x)

    return run


@program
def zeros_of_two_signs(model: Any) -> Any:
    for i, block in enumerate(model.blocks):
        block.inner.shift = -0.0 if i == 2 else 0.0

    def forward(self: Any, x: Tensor) -> Tensor:
        return Block.forward(self, x) + torch.copysign(torch.ones(WIDTH), torch.tensor(self.inner.shift))

    return with_forward(model, forward)

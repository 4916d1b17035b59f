"""Results have eager's types, identity, storage, dtype and strides; tracing touches nothing."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import Bag, Cases, arg, check_case, observed, ramp, without_grad, world
from soundness.object_facts import differences
from thunder.base.errors import UnsupportedProgram

cases = Cases()


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: torch.Tensor
    tags: tuple = ()


RESULTS = {
    "tuple": lambda x: (x, x + 1),
    "empty_tuple": lambda x: (),
    "list": lambda x: [x * 2, [x], []],
    "dict": lambda x: {"b": x * 2, "a": {1: x, (0, 1): None}},
    "ordered_dict": lambda x: collections.OrderedDict([("b", x * 2), ("a", 1)]),
    "defaultdict": lambda x: collections.defaultdict(list, a=x * 2),
    "deque": lambda x: collections.deque([x * 2, 3], maxlen=4),
    "namedtuple": lambda x: Point(x * 2, y=Point(1, x)),
    "torch_namedtuple": lambda x: torch.max(x, 0),
    "dataclass": lambda x: Pair(x * 2, right=[Pair(x)]),
    "frozen_dataclass": lambda x: Frozen(x * 2, ("a", 1)),
    "set_of_numbers": lambda x: {1, 2, x.ndim},
    "none": lambda x: None,
    "numbers": lambda x: (1, 2.5, True, 1 + 2j, -0.0, float("nan")),
    "strings": lambda x: ("a", b"b", str(x.dtype)),
    "metadata": lambda x: (x.shape, x.dtype, x.device, x.ndim, x.numel(), x.stride(), x.layout),
    "slice_and_range": lambda x: (slice(0, 2), range(3), ...),
    "a_type": lambda x: (int, torch.Tensor, Pair),
    "same_tensor_twice": lambda x: (y := x * 2, y, [y]),
    "same_list_twice": lambda x: (y := [x * 2], y),
    "item": lambda x: x.sum().item(),
    "items_in_a_dict": lambda x: {"loss": x.mean().item(), "t": x},
    "scalar_tensor": lambda x: x.sum(),
    "empty_tensor": lambda x: x[:0],
    "number_from_shape": lambda x: x.shape[0] * 2,
    "generator_consumed": lambda x: list(x * i for i in range(3)),
    "split": lambda x: torch.split(x, 1),
    "unpacked": lambda x: [*torch.unbind(x), *(1, 2)],
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_has_eagers_containers_and_types(name):
    cases = Cases()
    cases(values=arg(0, ramp(2, 3, start=9.0)))(lambda: world(RESULTS[name], ramp(2, 3)))
    check_case(cases[0], "values", thunder)


def test_a_registered_pytree_is_rebuilt():
    @dataclasses.dataclass
    class Registered:
        t: torch.Tensor

    torch.utils._pytree.register_pytree_node(
        Registered, lambda r: ([r.t], None), lambda ts, _: Registered(*ts)
    )
    result = thunder.jit(lambda x: Registered(x * 2))(ramp(3))
    assert type(result) is Registered
    assert torch.equal(result.t, ramp(3) * 2)


ALIASES = {
    "input_unchanged": lambda x, y: x,
    "input_in_containers": lambda x, y: {"a": [x], "b": (y, x)},
    "view": lambda x, y: x.view(-1),
    "reshape": lambda x, y: x.reshape(3, 2),
    "transpose": lambda x, y: x.mT,
    "slice": lambda x, y: x[:, 1:],
    "select": lambda x, y: x[0],
    "view_of_a_view": lambda x, y: x[0][1:].unsqueeze(0),
    "expand": lambda x, y: x[:, :1].expand(2, 5),
    "detach": lambda x, y: x.detach(),
    "chunks": lambda x, y: torch.chunk(x, 2),
    "contiguous_is_itself": lambda x, y: x.contiguous(),
    "to_is_itself": lambda x, y: x.to(torch.float32),
    "float_is_itself": lambda x, y: x.float(),
    "clone_is_a_copy": lambda x, y: x.clone(),
    "intermediate_and_its_view": lambda x, y: (z := x * 2, z[0], z.mT),
    "two_views_of_an_intermediate": lambda x, y: ((z := x + y)[0], z[1]),
    "dropout_in_eval_is_itself": lambda x, y: nn.functional.dropout(x, 0.5, training=False),
    "identity_module": lambda x, y: nn.Identity()(x),
    "modified_input": lambda x, y: x.add_(1),
    "modified_input_and_view": lambda x, y: (x.mul_(2), x[0]),
    "view_of_an_attribute": lambda x, y: y.mT[1],
    "reshape_that_copies": lambda x, y: x.mT.reshape(6),
    "squeeze_of_nothing": lambda x, y: x.squeeze(),
    "equal_but_separate": lambda x, y: (x + y, x + y),
    "same_constant_twice": lambda x, y: (torch.zeros(3), torch.zeros(3)),
}


@pytest.mark.parametrize("name", ALIASES)
def test_outputs_alias_inputs_and_one_another_as_in_eager(name):
    cases = Cases()
    cases(values=arg(0, ramp(2, 3, start=9.0)))(
        lambda: world(ALIASES[name], ramp(2, 3), ramp(2, 3, start=4.0))
    )
    check_case(cases[0], "values", thunder)


@cases(other=lambda w: w.args.__setitem__(0, {"t": ramp(2)}))
def a_container_argument_is_returned_itself():
    return world(lambda d, xs: (d, xs), {"t": ramp(3)}, [1, ramp(2)])


@cases(replaced=lambda w: setattr(w.program, "weight", nn.Parameter(ramp(3, start=8.0))))
def a_parameter_is_returned_itself():
    class Giver(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ramp(3))

        def forward(self, x):
            return self.weight, self.weight[1:], x

    return without_grad(world(Giver(), ramp(3)))


@cases(replaced=lambda w: setattr(w.args[0], "inner", Bag(a=2)))
def an_object_is_returned_itself():
    return world(
        lambda o, x: (o, o.inner, x * o.inner.a),
        Bag(inner=Bag(a=1)),
        ramp(3),
    )


@cases(integers=lambda w: w.args.__setitem__(0, torch.arange(3)))
def requires_grad_of_outputs_without_grad_mode():
    return without_grad(world(lambda a, b: (a * 2, a, a.detach(), b * 2), ramp(3).requires_grad_(), ramp(3)))


@cases()
def detached_and_integer_outputs():
    return world(lambda a: (a.detach() * 2, a.detach() > 1, a.detach().argmax()), ramp(3).requires_grad_())


DTYPES = {
    "int_plus_int_number": lambda i, h, d: i + 1,
    "int_plus_float_number": lambda i, h, d: i + 1.5,
    "int_true_division": lambda i, h, d: i / 2,
    "int_floor_division": lambda i, h, d: i // 2,
    "half_plus_float_number": lambda i, h, d: h * 2.5,
    "half_plus_double_tensor": lambda i, h, d: h + d,
    "half_plus_double_scalar_tensor": lambda i, h, d: h + d.sum(),
    "int_plus_half": lambda i, h, d: i + h,
    "bool_plus_bool": lambda i, h, d: (i > 1) + (i > 2),
    "bool_sum": lambda i, h, d: (i > 1).sum(),
    "int_mean_of_float": lambda i, h, d: i.float().mean(),
    "int_pow": lambda i, h, d: i**2,
    "int_pow_float": lambda i, h, d: i**0.5,
    "negative_floor": lambda i, h, d: (-i) // 2,
    "remainder": lambda i, h, d: (-i) % 3,
    "comparison": lambda i, h, d: h > i,
    "where_of_scalars": lambda i, h, d: torch.where(i > 1, 1.0, 2),
    "reflected": lambda i, h, d: 1 - h,
    "reflected_division": lambda i, h, d: 1 / i,
    "tensor_from_number": lambda i, h, d: torch.tensor(2) + torch.tensor(1.5),
    "arange": lambda i, h, d: (torch.arange(3), torch.arange(3.0), torch.arange(0, 1, 0.25)),
    "full": lambda i, h, d: (torch.full((2,), 1), torch.full((2,), 1.0), torch.full((2,), True)),
    "sum_to_double": lambda i, h, d: h.sum(dtype=torch.float64),
    "softmax_to_double": lambda i, h, d: torch.softmax(h, 0, dtype=torch.float64),
    "complex": lambda i, h, d: d * (1 + 2j),
}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_eagers(name):
    def build():
        return world(
            DTYPES[name], torch.arange(1, 4), ramp(3, dtype=torch.bfloat16), ramp(3, dtype=torch.float64)
        )

    cases = Cases()
    cases(dtype=arg(1, ramp(3, dtype=torch.float32)))(build)
    check_case(cases[0], "dtype", thunder)


@cases(transposed=lambda w: w.args.__setitem__(0, ramp(4, 2, 3).permute(1, 2, 0)))
def strides_follow_the_input():
    return world(
        lambda x: (x * 2, x.clone(), x + 1.0, x.contiguous(), torch.zeros_like(x), x.transpose(0, 1)),
        ramp(2, 3, 4),
    )


@cases(channels=lambda w: w.args.__setitem__(0, w.args[0].contiguous(memory_format=torch.channels_last)))
def strides_of_a_convolution():
    return without_grad(
        world(lambda x, w: torch.conv2d(x, w, padding=1).relu(), ramp(1, 2, 4, 4), ramp(3, 2, 3, 3))
    )


def test_a_refused_call_leaves_arguments_and_random_state_alone():
    def program(x, d, o):
        d["n"], o.t = d["n"] + 1, x * 2
        x.add_(1)
        return x.data_ptr()

    w = world(program, ramp(3), {"n": 1}, Bag(t=None))
    before, state = observed(w), torch.get_rng_state()
    with pytest.raises(UnsupportedProgram, match="data_ptr"):
        thunder.jit(program)(*w.args)
    assert not differences(before, observed(w))
    assert torch.equal(torch.get_rng_state(), state)


def kernels(run):
    """How often each of the expensive kernels of the program ran."""
    with torch.autograd.profiler.profile() as profile:
        run()
    names = [event.name for event in profile.function_events]
    return {name: names.count(name) for name in ("aten::mm", "aten::_softmax", "aten::sum")}


def test_tracing_runs_no_operation_on_user_data():
    def program(x, w):
        return torch.softmax(x @ w, -1).sum()

    x, w = ramp(2, 3), ramp(3, 4)
    thunder.jit(program, executors=["torch"])(x, w)  # layouts that kernels give are found once, with zeros
    compiled = thunder.jit(program, executors=["torch"])
    assert kernels(lambda: compiled(x, w)) == kernels(lambda: program(x, w))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)

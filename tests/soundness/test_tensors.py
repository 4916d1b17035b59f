"""The metadata of tensors, the storage that they share, and tensors that are no arguments."""

from __future__ import annotations

import torch

import thunder
from soundness.harness import Bag, Cases, arg, check_case, ramp, with_globals, without_grad, world

cases = Cases()


@cases(
    shape=arg(0, ramp(4, 3)),
    rank=arg(0, ramp(3)),
    double=arg(0, ramp(2, 3, dtype=torch.float64)),
    half=arg(0, ramp(2, 3, dtype=torch.bfloat16)),
    integer=arg(0, ramp(2, 3, dtype=torch.int64)),
    device=arg(0, torch.empty(2, 3, device="meta")),
)
def metadata_of_an_argument():
    def program(x):
        y = x * 2
        return y.sum(-1) / y.shape[0]

    return world(program, ramp(2, 3))


@cases(grad=lambda w: w.args[0].requires_grad_())
def requires_grad_of_an_argument_read():
    return without_grad(world(lambda x: x * 2 if x.requires_grad else x + 1, ramp(3)))


@cases(sparse=lambda w: w.args.__setitem__(0, w.args[0].to_sparse()))
def layout_of_an_argument():
    return world(lambda x: x * 2, ramp(3))


@cases(
    dtype=lambda w: w.args[1]["t"].__setitem__(0, ramp(3, dtype=torch.float64)),
    shape=lambda w: w.args[1]["t"].__setitem__(0, ramp(1)),
)
def metadata_of_a_nested_tensor():
    return world(lambda x, d: x + d["t"][0], ramp(3), {"t": [ramp(3)]})


@cases(
    shape=lambda w: setattr(w.args[1], "t", ramp(1)),
    dtype=lambda w: setattr(w.args[1], "t", ramp(3, dtype=torch.float64)),
)
def metadata_of_an_attribute():
    return world(lambda x, o: x + o.t, ramp(3), Bag(t=ramp(3)))


@cases(zero=arg(0, ramp(0, 3)), one=arg(0, ramp(1, 3)))
def dimension_of_size_zero_or_one():
    return world(lambda x, y: x + y, ramp(2, 3), ramp(1, 3))


@cases(
    transposed=lambda w: w.args.__setitem__(0, ramp(3, 2).mT),
    sliced=lambda w: w.args.__setitem__(0, ramp(2, 6)[:, ::2]),
)
def contiguity_read():
    return world(lambda x: x * 2 if x.is_contiguous() else x + 1, ramp(2, 3))


@cases(
    transposed=lambda w: w.args.__setitem__(0, ramp(3, 2).mT),
    sliced=lambda w: w.args.__setitem__(0, ramp(2, 6)[:, ::2]),
)
def strides_read():
    return world(lambda x: x * x.stride(0) + x.stride()[1], ramp(2, 3))


@cases(offset=lambda w: w.args.__setitem__(0, ramp(4)[1:]))
def storage_offset_read():
    return world(lambda x: x + x.storage_offset(), ramp(3))


@cases(channels=lambda w: w.args.__setitem__(0, w.args[0].contiguous(memory_format=torch.channels_last)))
def memory_format_read():
    return world(
        lambda x: x * 2 if x.is_contiguous(memory_format=torch.channels_last) else x, ramp(2, 3, 2, 2)
    )


@cases(
    transposed=lambda w: w.args.__setitem__(0, ramp(3, 2).mT),
    expanded=lambda w: w.args.__setitem__(0, ramp(1, 3).expand(2, 3)),
)
def strides_decide_whether_reshape_is_a_view():
    return world(lambda x: x.reshape(6), ramp(2, 3))


@cases(transposed=lambda w: w.args.__setitem__(0, ramp(3, 2).mT))
def view_needs_contiguity():
    return world(lambda x: x.view(6) * 2, ramp(2, 3))


@cases(transposed=lambda w: w.args.__setitem__(0, ramp(3, 2).mT))
def contiguous_returns_its_input_or_a_copy():
    return world(lambda x: x.contiguous(), ramp(2, 3))


@cases(leaf=lambda w: w.args.__setitem__(0, w.args[0].detach().requires_grad_()))
def leaf_read():
    return without_grad(world(lambda x: x * 2 if x.is_leaf else x + 1, ramp(3).requires_grad_() * 1))


@cases(grad=lambda w: setattr(w.args[0], "grad", ramp(3)))
def grad_is_none_read():
    return without_grad(world(lambda x: x * 2 if x.grad is None else x + x.grad, ramp(3).requires_grad_()))


def write_first_read_second(a, b):
    a.add_(1)
    return a * b


@cases(
    same=lambda w: w.args.__setitem__(1, w.args[0]),
    view=lambda w: w.args.__setitem__(1, w.args[0].view(4)),
    partial=lambda w: w.args.__setitem__(slice(0, 2), [(base := ramp(6))[:4], base[2:]]),
)
def disjoint_inputs_then_overlapping():
    return world(write_first_read_second, ramp(4), ramp(4, start=5.0))


@cases(apart=lambda w: w.args.__setitem__(1, ramp(4, start=7.0)))
def same_input_twice_then_disjoint():
    t = ramp(4)
    return world(write_first_read_second, t, t)


@cases(
    apart=lambda w: w.args.__setitem__(1, ramp(4, start=7.0)),
    other=lambda w: w.args.__setitem__(slice(0, 2), [(base := ramp(6))[1:5], base[:4]]),
)
def overlapping_inputs_then_disjoint():
    base = ramp(6)
    return world(write_first_read_second, base[:4], base[2:])


@cases(shared=lambda w: w.args.__setitem__(0, w.program.weight.data))
def input_shares_a_buffers_storage():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", ramp(4))

        def forward(self, x):
            x.mul_(2)
            return x + self.weight

    return world(Scale(), ramp(4, start=3.0))


@cases(shared=lambda w: w.args.__setitem__(0, w.program.__globals__["table"]))
def input_shares_a_globals_storage():
    def program(x):
        x.mul_(2)
        return x + table  # noqa: F821 - given by with_globals

    return world(with_globals(program, table=ramp(4)), ramp(4, start=3.0))


@cases(shared=lambda w: setattr(w.args[0], "b", w.args[0].a[:2]))
def attributes_come_to_share():
    def program(o):
        o.a.add_(1)
        return o.a[:2] * o.b

    return world(program, Bag(a=ramp(4), b=ramp(2, start=7.0)))


@cases(
    contents=lambda w: w.program.__closure__[0].cell_contents.add_(5),
    replaced=lambda w: setattr(w.program.__closure__[0], "cell_contents", ramp(3, start=9.0)),
)
def tensor_in_a_closure():
    weight = ramp(3)
    return world(lambda x: x * weight, ramp(3))


@cases(
    contents=lambda w: w.program.__globals__["weight"].add_(5),
    replaced=lambda w: w.program.__globals__.update(weight=ramp(3, start=9.0)),
    dtype=lambda w: w.program.__globals__.update(weight=ramp(3, dtype=torch.float64)),
)
def tensor_in_a_global():
    def program(x):
        return x * weight  # noqa: F821 - given by with_globals

    return world(with_globals(program, weight=ramp(3)), ramp(3))


@cases(
    contents=lambda w: w.program.mask.add_(5),
    replaced=lambda w: setattr(w.program, "mask", ramp(3, start=9.0)),
)
def tensor_as_a_plain_attribute_of_a_module():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = ramp(3)

        def forward(self, x):
            return x * self.mask

    return world(Masked(), ramp(3))


@cases(
    contents=lambda w: w.program.__defaults__[0].add_(5),
    replaced=lambda w: setattr(w.program, "__defaults__", (ramp(3, start=9.0),)),
)
def tensor_as_a_default():
    def program(x, weight=ramp(3)):  # noqa: B008 - the trap under test
        return x * weight

    program.__defaults__ = (ramp(3),)
    return world(program, ramp(3))


@cases(
    contents=lambda w: w.args[1].cache["w"].add_(5),
    replaced=lambda w: w.args[1].cache.update(w=ramp(3, start=9.0)),
)
def tensor_in_a_dict_of_an_object():
    return world(lambda x, o: x * o.cache["w"], ramp(3), Bag(cache={"w": ramp(3)}))


@cases(
    contents=lambda w: type(w.args[1]).weight.add_(5),
    replaced=lambda w: setattr(type(w.args[1]), "weight", ramp(3, start=9.0)),
)
def tensor_as_a_class_attribute():
    class Holder:
        weight = ramp(3)

    Holder.weight = ramp(3)
    return world(lambda x, o: x * o.weight, ramp(3), Holder())


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)

"""Tensors of subclasses, and other objects with ``__torch_function__``."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder


class Tagged(torch.Tensor):
    """Torch's own ``__torch_function__``: results have the class."""


class Logged(torch.Tensor):
    lines: ClassVar = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Logged.lines.append((func.__name__, tuple(t.__name__ for t in types)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Boxes(torch.Tensor):
    """Keeps class and attributes in ``clone`` alone."""

    @staticmethod
    def __new__(cls, data, layout="xyxy"):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, layout="xyxy"):
        self.boxes = layout

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return cls(result, args[0].boxes) if func is torch.Tensor.clone else result

    @property
    def area(self):
        return self[..., 2] * self[..., 3]


class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Weight(torch.nn.Parameter):
    def doubled(self):
        return self * 2


class Scaled(torch.nn.Parameter):
    factor = 2.0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result * cls.factor if func is F.linear else result


class Lazy:
    """Is no tensor, and holds one."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def opened(arg):
            return [opened(a) for a in arg] if isinstance(arg, list) else getattr(arg, "value", arg)

        return Lazy(func(*map(opened, args), **(kwargs or {})))


def text(value):
    """Return what one sees of a result: classes, values, attributes."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return type(value), value.requires_grad, value.tolist(), vars(value)
    return [text(v) for v in value] if isinstance(value, tuple | list) else value


def ramp(cls=None):
    x = torch.arange(8.0).reshape(2, 4)
    return x if cls is None else x.as_subclass(cls)


def results(x, y):
    return x * 2 + 1, y + x, F.softmax(x, 0), torch.cat([y, x]), [r for r in x], x.shape, x.dim(), x


def kinds(x, y):
    plain = x.as_subclass(torch.Tensor)
    return isinstance(x, Tagged), type(x * 2), isinstance(plain, Tagged), plain, x.as_subclass(Logged), x is x


@pytest.mark.parametrize("cls", [None, Tagged, Logged, Disabled])
@pytest.mark.parametrize("program", [results, kinds])
def test_classes_and_calls_are_those_of_eager(program, cls):
    compiled, seen = thunder.jit(program), []
    for fn in (program, compiled, compiled):
        Logged.lines.clear()
        seen.append((text(fn(ramp(cls), torch.ones(2, 4))), list(Logged.lines)))
    assert seen[0] == seen[1] == seen[2]
    assert thunder.cache_misses(compiled) == 1


def test_attributes_methods_and_properties_of_a_subclass_are_its_own():
    def program(x, y):
        own = Boxes(y, "cxcy")
        return x.boxes, x.area, x.clone(), x.clone().boxes, own, own.area, own + x

    compiled = thunder.jit(program)
    for layout in ("xyxy", "xywh"):
        x = Boxes(ramp(), layout)
        assert text(compiled(x, ramp())) == text(program(x, ramp()))
    assert thunder.cache_misses(compiled) == 2


def test_gradients_flow_through_the_class():
    def program(x):
        return (x.sin() * x.as_subclass(torch.Tensor).as_subclass(Tagged)).sum()

    grads = []
    for fn in (program, thunder.jit(program)):
        x = ramp().requires_grad_()
        fn(x.as_subclass(Tagged)).as_subclass(torch.Tensor).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_parameters_of_a_subclass_train(monkeypatch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.scale = Scaled(torch.ones(4, 4)), Weight(torch.ones(4))

        def forward(self, x):
            return F.linear(x, self.weight) + self.scale.doubled()

    model = Model()
    compiled = thunder.jit(model)

    def step(fn):
        model.zero_grad()
        loss = fn(ramp()).sum()
        loss.backward()
        return loss.item(), model.weight.grad.clone(), model.scale.grad.clone()

    for factor in (2.0, 3.0):
        monkeypatch.setattr(Scaled, "factor", factor)
        torch.testing.assert_close(step(compiled), step(model))
    assert thunder.cache_misses(compiled) == 2


def test_a_tensor_of_a_subclass_that_is_passed_twice_is_compiled_again():
    def program(a, b):
        a.add_(1)
        return a + b, a is b

    compiled = thunder.jit(program)
    for twice in (False, True, False):
        seen = []
        for fn in (program, compiled):
            a = ramp(Tagged).clone()
            seen.append((text(fn(a, a if twice else ramp(Tagged))), text(a)))
        assert seen[0] == seen[1]
    assert thunder.cache_misses(compiled) == 2


def test_another_torch_function_of_a_class_is_compiled_again(monkeypatch):
    def program(x):
        return x + 1

    compiled = thunder.jit(program)
    assert text(compiled(ramp(Logged))) == text(program(ramp(Logged)))
    monkeypatch.setattr(Logged, "__torch_function__", torch._C._disabled_torch_function_impl)
    assert text(compiled(ramp(Logged))) == text(program(ramp(Logged)))
    assert thunder.cache_misses(compiled) == 2


def test_an_object_that_is_no_tensor_overrides_torchs_functions():
    def program(x, lazy):
        y = torch.add(x, lazy).value, (x * Lazy(x)).value, torch.cat([lazy, lazy]).value
        return (*y, F.softmax(lazy, 0).value, torch.overrides.has_torch_function((x, lazy)))

    x = ramp()
    assert text(thunder.jit(program)(x, Lazy(x + 1))) == text(program(x, Lazy(x + 1)))


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class OwnAdd(torch.Tensor):
    def __add__(self, other):
        return 7


@pytest.mark.parametrize(
    ("cls", "reason", "inside"),
    [
        (Dispatching, "__torch_dispatch__", True),
        (OwnAdd, "OwnAdd.__add__", True),
        (OwnAdd, "OwnAdd.__add__", False),
    ],
)
def test_a_class_that_is_not_followed_is_refused(cls, reason, inside):
    def program(x):
        return (x.as_subclass(cls) if inside else x) + 1

    with pytest.raises(thunder.UnsupportedProgram, match=reason):
        thunder.jit(program)(ramp() if inside else ramp(cls))


def test_a_checkpointed_region_and_containers_have_tensors_of_a_subclass():
    def region(y):
        return y.sin() * y

    def program(x, results):
        y = x.as_subclass(Tagged)
        y.label = "y"
        results["kept"] = [y, y]
        return checkpoint(region, y, use_reentrant=False)

    seen = []
    for fn in (program, thunder.jit(program)):
        x, results = ramp().requires_grad_(), {}
        result = fn(x, results)
        result.as_subclass(torch.Tensor).sum().backward()
        first, second = results["kept"]
        seen.append((text(result), x.grad.tolist(), text(first), first is second))
    assert seen[0] == seen[1]


class Manifold(torch.Tensor):
    """A class whose body has the names that it imports, ``_disabled_torch_function_impl`` among them."""

    from torch._C import _disabled_torch_function_impl

    __torch_function__ = _disabled_torch_function_impl

    def project(self):
        return self / self.norm()


class ManifoldParameter(Manifold, torch.nn.Parameter):
    @staticmethod
    def __new__(cls, data):
        return torch.Tensor._make_subclass(cls, data, True)


def test_a_class_may_import_the_function_that_disables_overrides():
    def program(x, p):
        return x * p, p.project()

    p, x = ManifoldParameter(torch.ones(3)), torch.arange(3.0)
    for fn in (program, thunder.jit(program)):
        product, projected = fn(x, p)
        assert type(product) is type(projected) is torch.Tensor
        product.sum().backward()
        assert torch.equal(p.grad, x)
        p.grad = None


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [a.inner if isinstance(a, Wrapper) else a for a in args]
        return func(*inner, **(kwargs or {}))


def test_a_class_that_computes_by_its_dispatch_is_called_or_passed_and_can_be_in_opaque_code():
    two = torch.full((2,), 2.0)
    assert torch.equal(thunder.jit(lambda x: Wrapper(x) * 2)(torch.ones(2)), two)
    assert torch.equal(thunder.jit(lambda x: x * 2)(Wrapper(torch.ones(2))), two)
    doubled = thunder.opaque(lambda x: Wrapper(x) * 2)
    assert torch.equal(thunder.jit(lambda x: doubled(x + 1))(torch.ones(2)), torch.full((2,), 4.0))


class Named(torch.Tensor):
    def __init__(self, *data):
        self.label = f"{len(data)} arguments"


class Checked(torch.Tensor):
    def __new__(cls, data, unit):
        made = super().__new__(cls, data)
        made.unit = unit
        return made


def constructs(x):
    named, checked, logged = Named([1.0, 2.0]), Checked(x, "m"), Logged(x) * 2
    return (
        named * x,
        named.label,
        checked.unit,
        (checked * 2).sum(),
        logged.as_subclass(torch.Tensor),
        Tagged(2, 0),
    )


def writes_through(x):
    view = Tagged(x)
    view.add_(1)
    return type(view) is Tagged, x * 1, view * 2


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [constructs, writes_through])
def test_a_class_of_tensors_without_a_constructor_of_its_own_is_called(program, grad):
    compiled, results = thunder.jit(program), []
    for fn in (program, compiled, compiled):
        x = torch.tensor([0.5, 1.5], requires_grad=grad)
        Logged.lines.clear()
        try:
            values = fn(x)
        except RuntimeError as error:
            results.append(str(error))
            continue
        kinds = [type(v) for v in values]
        plain = [v.detach().tolist() if isinstance(v, torch.Tensor) else v for v in values]
        gradient = torch.autograd.grad(values[3], x)[0].tolist() if grad else None
        results.append((kinds, plain, gradient, Logged.lines[:1]))
    assert results[0] == results[1] == results[2]


def test_a_replaced_initialiser_of_a_class_of_tensors_is_noticed(monkeypatch):
    compiled = thunder.jit(lambda x: Named(x).label)
    assert compiled(torch.ones(1)) == "1 arguments"
    monkeypatch.setattr(Named, "__init__", lambda self, data: setattr(self, "label", "other"))
    assert compiled(torch.ones(1)) == "other"

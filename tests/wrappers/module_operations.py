"""What can be done to a module from outside: named operations, and modules to do them to."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from soundness.harness import ramp

Operation = Callable[[Any], Any]
OPERATIONS: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    """Adds an operation on a module to the table, under its name."""
    OPERATIONS[function.__name__] = function
    return function


# -- modules -------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A module with a bit of everything: buffers, a nested module, state in attributes, methods."""

    kind = "net"

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ramp(3, 3, start=0.5))
        self.bias = nn.Parameter(ramp(3))
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.tied = self.inner[0]
        self.register_buffer("shift", ramp(3, start=2.0))
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.scale, self.table = 2.0, {"power": 1}
        self.calls = 0

    @property
    def doubled(self) -> float:
        return self.scale * 2

    @doubled.setter
    def doubled(self, value: float) -> None:
        self.scale = value / 2

    def configured(self, scale: float) -> Net:
        self.scale = scale
        return self

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).argmax(-1)

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def forward(self, x: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
        self.calls += 1
        y = self.inner(x) @ self.weight + self.bias + self.shift * self.hidden
        return y * self.scale ** self.table["power"] + extra + (1.0 if self.training else 0.0)

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class Shadowing(Net):
    """Has attributes, parameters, modules and methods under the names that compiled modules add."""

    def __init__(self) -> None:
        super().__init__()
        self._model = nn.Linear(3, 3)
        self.override = nn.Parameter(ramp(3))
        self.register_buffer("_state", ramp(3))
        self._run, self._transforms, self._overrides = 3.0, (1, 2), {"a": 1.0}

    def overrides(self) -> str:
        return "mine"

    def original_state_dict(self) -> str:
        return "also mine"

    def forward(self, x: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
        return super().forward(self._model(x) * self.override + self._state * self._run, extra)


class Container(Net):
    """Has special methods."""

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, key: Any) -> Any:
        return self.inner[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.inner[key] = value

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.inner)

    def __contains__(self, item: object) -> bool:
        return item in list(self.inner)

    def __bool__(self) -> bool:
        return self.scale > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Container) and self.scale == other.scale

    def __hash__(self) -> int:
        return 7

    def __lt__(self, other: Any) -> bool:
        return bool(self.scale < getattr(other, "scale", other))

    def __add__(self, other: float) -> float:
        return self.scale + other

    def __radd__(self, other: float) -> float:
        return other - self.scale

    def __iadd__(self, other: float) -> Container:
        self.scale += other
        return self

    def __enter__(self) -> Container:
        self.scale *= 2
        return self

    def __exit__(self, *error: object) -> None:
        self.scale /= 4

    def __str__(self) -> str:
        return f"Container of scale {self.scale}"

    def __format__(self, spec: str) -> str:
        return f"{spec}!"

    def __int__(self) -> int:
        return int(self.scale)

    def __float__(self) -> float:
        return float(self.scale)

    def __index__(self) -> int:
        return 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) + 0.5


class Slotted(Net):
    """Keeps a fact in a slot."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        super().__init__()
        self.factor = 3.0

    def forward(self, x: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
        return super().forward(x, extra) * self.factor


class Dynamic(Net):
    """Answers for attributes that it does not have, and redirects a write."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("double_"):
            return getattr(self, name.removeprefix("double_")) * 2
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "gain":
            object.__setattr__(self, "scale", value)
        else:
            super().__setattr__(name, value)


class Registry(type):
    """Lists the classes that it makes, and refuses to derive from them."""

    made: ClassVar[list[str]] = []

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
        if any(isinstance(base, Registry) for base in bases):
            raise TypeError("this class is final")
        mcs.made.append(name)
        return super().__new__(mcs, name, bases, namespace)


class Registered(Net, metaclass=Registry):
    """Has a metaclass."""


def _sequential() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.0), nn.Linear(3, 3))
    for i, p in enumerate(model.parameters()):
        p.data = ramp(*p.shape, start=float(i)) / 7
    return model


def _linear() -> nn.Module:
    model = nn.Linear(3, 3)
    model.weight.data, model.bias.data = ramp(3, 3, start=1.0) / 5, ramp(3)
    return model


def _seeded(cls: type[nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return cls()

    return make


#: kinds of modules
KINDS: dict[str, Callable[[], nn.Module]] = {
    "linear": _linear,
    "sequential": _sequential,
    **{c.__name__: _seeded(c) for c in (Net, Shadowing, Container, Slotted, Dynamic, Registered)},
}


class Parent(nn.Module):
    """A module with the module in question as a part."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.last = nn.Linear(3, 2, bias=False)
        self.last.weight.data = ramp(2, 3)

    def forward(self, x: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
        return self.last(self.part(x))


# -- what is there -------------------------------------------------------------------------------------------


@operation
def names(m):
    return {
        "parameters": [n for n, _ in m.named_parameters()],
        "all parameters": [n for n, _ in m.named_parameters(remove_duplicate=False)],
        "with a prefix": [n for n, _ in m.named_parameters("p", recurse=False)],
        "buffers": [n for n, _ in m.named_buffers()],
        "modules": [n for n, _ in m.named_modules()],
        "all modules": [n for n, _ in m.named_modules(remove_duplicate=False)],
        "children": [n for n, _ in m.named_children()],
        "kinds": [type(child).__name__ for child in m.modules()],
        "count": len(list(m.children())),
        "own": [list(m._modules), list(m._parameters), list(m._buffers)],
        "vars": sorted(vars(m)),
        "dir": [n for n in dir(m) if n not in ADDED],
    }


#: what ``dir`` of a compiled module has and that of the module may not have
ADDED = {"_model", "_orig_mod", "override", "overrides", "release_original", "set_buffer"} | {
    "original_state_dict",
    "load_original_state_dict",
    "transformed_items",
}


@operation
def identity(m):
    return (
        next(iter(m.modules())) is m,
        dict(m.named_modules())[""] is m,
        isinstance(m, nn.Module),
        isinstance(m, Net),
        m.__class__.__name__,
        type(m).__name__,
        type(m).__module__,
        m == m,
        m != m,
        m in [m],
        {m: 1}[m],
        weakref.ref(m)() is m,
        m.train == m.train,
        m.forward == m.forward,
        inspect.ismethod(m.forward),
        inspect.ismethod(m.train),
        str(inspect.signature(m.forward)),
        str(inspect.signature(m.train)),
        m.__doc__,
        m.forward.__name__,
        m.train.__self__ is m,
        callable(m),
        bool(m),
    )


@operation
def printed(m):
    return m.extra_repr(), m._get_name(), dir(m) == sorted(dir(m))


@operation
def lookups(m):
    first = next(n for n, _ in m.named_parameters())
    owner, _, last = first.rpartition(".")
    return m.get_parameter(first), m.get_submodule(owner) is m, getattr(m.get_submodule(owner), last)


@operation
def absent_attribute(m):
    return getattr(m, "absent", 3), hasattr(m, "overrides_of_mine"), m.absent


@operation
def absent_buffer(m):
    return m.get_buffer("absent")


@operation
def absent_submodule(m):
    return m.get_submodule("absent")


@operation
def shadowed_names(m):
    if not isinstance(m, Shadowing):
        return None
    return m.overrides(), m.original_state_dict(), m._model, m.override, m._run, m._transforms, m._overrides


@operation
def writes_shadowed_names(m):
    m._run, m.override.data = 5.0, m.override.data * 2
    m._model = nn.Identity()
    del m._transforms
    return hasattr(m, "_transforms"), m._run


@operation
def registers_shadowed_names(m):
    m.register_buffer("overrides", torch.ones(1))
    m.register_buffer("set_buffer", torch.ones(1))
    m.add_module("load_original_state_dict", nn.Identity())
    return list(m.state_dict())


@operation
def methods(m):
    return m.configured(4.0) is m, m.doubled, m.named(), m.predict(ramp(2, 3)), m.double_scale, m.kind


@operation
def class_attribute(m):
    return m.kind, type(m).__mro__[-1], m.__class__.kind


# -- writes --------------------------------------------------------------------------------------------------


@operation
def attribute(m):
    m.scale = 7.0
    return m.scale


@operation
def deleted_attribute(m):
    del m.scale
    return hasattr(m, "scale")


@operation
def property_write(m):
    m.doubled = 10.0
    return m.doubled, m.scale


@operation
def gain(m):
    m.gain = 3.0
    return m.scale


@operation
def slot(m):
    m.factor = m.factor * 2
    return m.factor


@operation
def deleted_slot(m):
    del m.factor
    return hasattr(m, "factor")


@operation
def through_the_dictionary(m):
    m.__dict__["scale"] = 5.0
    vars(m)["table"] = {"power": 2}
    return m.scale


@operation
def past_setattr(m):
    object.__setattr__(m, "scale", 9.0)
    nn.Module.__setattr__(m, "table", {"power": 2})
    return m.scale, vars(m)["scale"]


@operation
def inner_container(m):
    m.table["power"] = 3


@operation
def parameter_replaced(m):
    m.weight = nn.Parameter(m.weight.detach() * 2)
    return "weight" in m._parameters


@operation
def parameter_without_data(m):
    m.bias.data = m.bias.data + 1
    m.bias.requires_grad_(False)
    return m.bias.requires_grad


@operation
def parameter_removed(m):
    m.bias = None
    return m.bias, list(m.state_dict())


@operation
def parameter_refused(m):
    m.weight = torch.ones(3)


@operation
def parameter_deleted(m):
    del m.weight
    return hasattr(m, "weight")


@operation
def buffer_replaced(m):
    m.shift = m.shift * 3


@operation
def buffer_written(m):
    m.shift.mul_(2)


@operation
def registered(m):
    m.register_buffer("late", ramp(2))
    m.register_buffer("unsaved", ramp(2), persistent=False)
    m.register_parameter("gain_of_mine", nn.Parameter(ramp(3)))
    m.add_module("added", nn.Linear(3, 3))
    m.register_module("again", m.added)
    return list(m.state_dict())


@operation
def registered_twice(m):
    m.register_buffer("weight", ramp(2))


@operation
def module_replaced(m):
    m.set_submodule("inner.1", nn.Tanh())
    return m.inner[1]


@operation
def module_assigned(m):
    m.inner = nn.Identity()
    return m.inner


@operation
def module_in_the_table(m):
    m._modules["inner"] = nn.Identity()
    return m.inner


@operation
def forward_replaced(m):
    earlier = m.forward
    m.forward = lambda x, *rest: earlier(x, *rest) * 2


@operation
def class_replaced(m):
    class Other(m.__class__ if isinstance(m, Slotted) else Net):
        def forward(self, x, extra=0.0):
            return x * self.scale

        def __len__(self):
            return 5

    m.__class__ = Other
    return m.__class__ is Other, isinstance(m, Other), len(m)


@operation
def special_methods(m):
    with m as entered:
        inside = entered is m, m.scale
    return (
        *(len(m), m[0], list(m), m[0] in m, "a" in m, bool(m), m < 5, m + 1, 1 + m, str(m), f"{m:x}"),
        *(int(m), float(m), [1, 2, 3][m], hash(m), m == copy.copy(m), m != 3, *inside, m.scale),
    )


@operation
def special_writes(m):
    m[1] = nn.Tanh()
    before = m
    m += 2.0
    return m is before, m.scale


@operation
def sequence(m):
    m.append(nn.Linear(3, 3))
    m.insert(0, nn.Identity())
    m.extend([nn.ReLU()])
    del m[2]
    m[1] = nn.Identity()
    return len(m), m[-1], m[1:3], list(m), (m + nn.Sequential(nn.ReLU())), m.pop(0), m.append(nn.Tanh()) is m


# -- modes, dtypes and gradients -----------------------------------------------------------------------------


@operation
def modes(m):
    return m.eval() is m, m.training, m.train() is m, m.train(False) is m, m.training


@operation
def training_flag(m):
    m.training = not m.training


@operation
def double(m):
    return m.double() is m, next(m.parameters()).dtype


@operation
def half_and_back(m):
    return m.half().float() is m


@operation
def to(m):
    return m.to(torch.float64) is m, m.to("cpu").to(torch.float32) is m


@operation
def to_empty(m):
    found = m.to_empty(device="cpu") is m
    for tensor in (*m.parameters(), *m.buffers()):
        tensor.data.fill_(0.5)
    return found


@operation
def share_memory(m):
    return m.share_memory() is m, all(p.is_shared() for p in m.parameters())


@operation
def frozen(m):
    return m.requires_grad_(False) is m, [p.requires_grad for p in m.parameters()]


@operation
def gradients(m):
    m(ramp(2, 3)).sum().backward()
    before = [p.grad is not None for p in m.parameters()]
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    grads = [None if p.grad is None else p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    return before, norm, grads, [p.grad for p in m.parameters()]


@operation
def optimised(m):
    optimiser = torch.optim.AdamW(m.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        m(ramp(2, 3)).square().sum().backward()
        optimiser.step()


@operation
def applied(m):
    seen = []

    def fill(module):
        seen.append(type(module).__name__)
        if type(module) is nn.Linear:
            nn.init.constant_(module.weight, 0.25)

    return m.apply(fill) is m, seen


@operation
def vectors(m):
    vector = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(vector.detach() * 0.5, m.parameters())
    return vector.detach()


# -- state dicts ---------------------------------------------------------------------------------------------


def _changed(state):
    return {k: v * 0.5 if v.is_floating_point() else v for k, v in state.items()}


@operation
def state(m):
    destination = {}
    m.state_dict(destination=destination, prefix="p.")
    return m.state_dict(), list(destination), list(m.state_dict(keep_vars=True)), m.state_dict()._metadata


@operation
def loaded(m):
    return m.load_state_dict(_changed(m.state_dict()))


@operation
def loaded_by_assignment(m):
    return m.load_state_dict(_changed(m.state_dict()), assign=True)


@operation
def loaded_in_part(m):
    part = dict(list(_changed(m.state_dict()).items())[1:], other=ramp(1))
    return m.load_state_dict(part, strict=False)


@operation
def loaded_strictly(m):
    return m.load_state_dict({"other": ramp(1)})


@operation
def loaded_in_another_shape(m):
    return m.load_state_dict({k: torch.zeros(9) for k in m.state_dict()})


@operation
def state_hooks(m):
    seen = []
    m.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("before", prefix, keep)))
    m.register_state_dict_post_hook(lambda module, found, prefix, meta: found.update({prefix + "x": ramp(1)}))
    m.register_load_state_dict_pre_hook(lambda module, found, *rest: found.pop("x", None))
    m.register_load_state_dict_post_hook(lambda module, keys: seen.append(list(keys.missing_keys)))
    m._register_load_state_dict_pre_hook(lambda found, *rest: seen.append(sorted(found)))
    return list(m.state_dict()), m.load_state_dict(m.state_dict()), seen


@operation
def extra_state(m):
    return m.get_extra_state()


@operation
def saved(m):
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    return m.load_state_dict(_changed(torch.load(file)))


# -- hooks ---------------------------------------------------------------------------------------------------


def _seen(log, module, m):
    log.append((module is m, type(module).__name__))


@operation
def forward_hooks(m):
    log = []

    def shown(module, args, out):
        _seen(log, module, m)
        return out + 1

    m.register_forward_hook(shown)
    m.register_forward_hook(lambda module, args, out: out * 2, prepend=True)
    m.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    m.register_forward_pre_hook(lambda module, args: args[0] + 1, prepend=True)
    return m(ramp(2, 3)), m.forward(ramp(2, 3)), log, len(m._forward_hooks)


@operation
def forward_hooks_with_keywords(m):
    log = []
    m.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "extra": 2.0}), with_kwargs=True
    )
    m.register_forward_hook(lambda module, args, kwargs, out: log.append(dict(kwargs)), with_kwargs=True)
    return m(ramp(2, 3), extra=1.0), log


@operation
def hooks_that_always_run(m):
    log = []
    m.register_forward_hook(lambda module, args, out: log.append(out is None), always_call=True)
    with contextlib.suppress(RuntimeError):
        m(ramp(2, 5))
    return log


@operation
def hooks_with_side_effects(m):
    log = []
    m.register_forward_hook(lambda module, args, out: log.append(out.sum().item()))
    m(ramp(2, 3))
    return log


@operation
def removed_hooks(m):
    handle = m.register_forward_hook(lambda module, args, out: out * 100)
    first = m(ramp(2, 3))
    handle.remove()
    return first, m(ramp(2, 3)), len(m._forward_hooks)


@operation
def hooks_on_every_module(m):
    log = []
    position = {module: name for name, module in m.named_modules()}
    for module in m.modules():
        module.register_forward_hook(lambda module, args, out: log.append(position[module]))
    m(ramp(2, 3))
    return len(position), [n for n in log if n == ""]


@operation
def backward_hooks(m):
    log = []
    m.register_full_backward_hook(
        lambda module, gin, gout: log.append((module is m, [g if g is None else g.clone() for g in gin]))
    )
    m.register_full_backward_pre_hook(lambda module, gout: tuple(g * 2 for g in gout))
    x = ramp(2, 3).requires_grad_()
    m(x).sum().backward()
    m.zero_grad()
    return log, x.grad


@operation
def global_hooks(m):
    log = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 3)
    m.register_forward_hook(lambda module, args, out: log.append(out.clone()))
    try:
        return m(ramp(2, 3)), log
    finally:
        handle.remove()


@operation
def global_hooks_alone(m):
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, args: (args[0] * 3,))
    try:
        return m(ramp(2, 3))
    finally:
        handle.remove()


# -- torch's tools for modules -------------------------------------------------------------------------------


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, w):
        return w * 2

    def right_inverse(self, w):
        return w / 2


def _tensor_name(m):
    return next(n for n, _ in m.named_parameters(recurse=False))


@operation
def parametrised(m):
    name = _tensor_name(m)
    found = parametrize.register_parametrization(m, name, Doubled()) is m
    parametrize.register_parametrization(m, name, Doubled())
    with parametrize.cached():
        outputs = m(ramp(2, 3)), getattr(m, name)
    return found, outputs, parametrize.is_parametrized(m, name), list(m.state_dict()), m.__class__.__name__


@operation
def parametrised_and_back(m):
    name = _tensor_name(m)
    parametrize.register_parametrization(m, name, Doubled())
    setattr(m, name, getattr(m, name) * 3)
    m(ramp(2, 3))
    parametrize.remove_parametrizations(m, name)
    return m.__class__.__name__, list(m.state_dict()), getattr(m, name)


@operation
def parametrised_norms(m):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parametrizations.weight_norm(m, "weight")
        m(ramp(2, 3))
        parametrizations.spectral_norm(m, "weight")
    m.eval()


@operation
def norms_by_hooks(m):
    nn.utils.weight_norm(m, "weight")
    m(ramp(2, 3)).sum().backward()
    return [n for n, _ in m.named_parameters()], m.weight_g.grad


@operation
def spectral_norm_by_hooks(m):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nn.utils.spectral_norm(m, "weight")
    m.eval()
    return m(ramp(2, 3)), [n for n, _ in m.named_buffers()]


@operation
def pruned(m):
    prune.l1_unstructured(m, "weight", amount=0.5)
    out = m(ramp(2, 3))
    return out, m.weight_mask, prune.is_pruned(m), list(m.state_dict())


@operation
def pruned_for_good(m):
    prune.l1_unstructured(m, "weight", amount=0.5)
    prune.remove(m, "weight")
    return list(m.state_dict())


@operation
def functional_call(m):
    given = {n: p.detach() * 2 for n, p in m.named_parameters()}
    return torch.func.functional_call(m, given, (ramp(2, 3),)), list(m.named_parameters())


@operation
def functional_call_strict(m):
    return torch.func.functional_call(m, {"absent": ramp(1)}, (ramp(2, 3),), strict=True)


@operation
def averaged(m):
    average = torch.optim.swa_utils.AveragedModel(m)
    with torch.no_grad():
        for p in m.parameters():
            p.add_(1.0)
    average.update_parameters(m)
    average.update_parameters(m)
    return average(ramp(2, 3)), list(average.state_dict())


@operation
def moving_average(m):
    decay = torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    average = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=decay, use_buffers=True)
    for p in m.parameters():
        p.data.mul_(2)
    average.update_parameters(m)
    return average.module(ramp(2, 3))


# -- copies --------------------------------------------------------------------------------------------------


def _independent(m, other):
    """The outputs of a copy, then those of both after a parameter of the copy was changed."""
    before = other(ramp(2, 3))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    return other is m, before, other(ramp(2, 3)), m(ramp(2, 3)), other.training == m.training


@operation
def deep_copy(m):
    return _independent(m, copy.deepcopy(m))


@operation
def shallow_copy(m):
    return _independent(m, copy.copy(m))


@operation
def copy_within_a_container(m):
    first, second = copy.deepcopy([m, m])
    return first is second, list(first.state_dict())


@operation
def copy_with_hooks(m):
    m.register_forward_hook(lambda module, args, out: out * 2)
    return copy.deepcopy(m)(ramp(2, 3))


@operation
def pickled(m):
    return _independent(m, pickle.loads(pickle.dumps(m)))


@operation
def saved_whole(m):
    file = io.BytesIO()
    torch.save(m, file)
    file.seek(0)
    return _independent(m, torch.load(file, weights_only=False))


@operation
def gone(m):
    reference = weakref.ref(copy.deepcopy(m))
    gc.collect()
    return reference() is None

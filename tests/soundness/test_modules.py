"""Parameters, submodules, hooks, attributes, globals, and functions replaced."""

from __future__ import annotations

import collections
import types

import torch
from torch import nn
from torch.nn.utils import parametrize

import thunder
from soundness.harness import Bag, Cases, attr, check_case, ramp, with_globals, without_grad, world

cases = Cases()


class Net(nn.Module):
    """Two linear layers, a buffer, a list and some attributes, all with numbers of our own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.register_buffer("shift", ramp(3))
        self.register_parameter("gain", None)
        self.scale = 2.0
        self.options = {"bias": 0.5}
        for i, p in enumerate(self.parameters()):
            p.data = ramp(*p.shape, start=-1.0 + i)

    def forward(self, x):
        x = self.first(x) * self.scale + self.shift
        for layer in self.layers:
            x = layer(x)
        if self.gain is not None:
            x = x * self.gain
        return x + self.options["bias"]


def net():
    return without_grad(world(Net(), ramp(2, 3, start=-1.0)))


def parameter(*shape, start=5.0, **options):
    return nn.Parameter(ramp(*shape, start=start), **options)


@cases(
    assignment=lambda w: setattr(w.program.first, "weight", parameter(3, 3)),
    setattr_on_a_list_element=lambda w: setattr(w.program.layers[0], "bias", parameter(3)),
    data=lambda w: setattr(w.program.first.weight, "data", ramp(3, 3, start=9.0)),
    data_of_another_dtype_and_shape=lambda w: setattr(w.program.shift, "data", ramp(1, dtype=torch.float64)),
    in_place=lambda w: w.program.first.weight.data.mul_(3),
    load_assign=lambda w: w.program.load_state_dict(
        {k: v + 1 for k, v in w.program.state_dict().items()}, assign=True
    ),
    load_copy=lambda w: w.program.load_state_dict({k: v + 1 for k, v in w.program.state_dict().items()}),
    register=lambda w: w.program.register_parameter("gain", parameter(3)),
    bias_to_none=lambda w: setattr(w.program.first, "bias", None),
    buffer=lambda w: setattr(w.program, "shift", ramp(3, start=7.0)),
    buffer_to_none_raises=lambda w: setattr(w.program, "shift", None),
    delete=lambda w: delattr(w.program.first, "bias"),
)
def parameters_replaced():
    return net()


@cases(
    back=lambda w: setattr(w.program, "gain", None),
    value=lambda w: setattr(w.program, "gain", parameter(3, start=8.0)),
)
def parameter_to_none():
    w = net()
    w.program.gain = parameter(3)
    return w


@cases(
    double=lambda w: (w.program.to(torch.float64), w.args.__setitem__(0, w.args[0].double())),
    half_of_the_module_only=lambda w: w.program.layers.to(torch.float64),
    requires_grad=lambda w: w.program.requires_grad_(False),
    one_requires_grad=lambda w: w.program.first.weight.requires_grad_(False),
)
def module_moved():
    return net()


@cases(untied=lambda w: setattr(w.program.layers[0], "weight", parameter(3, 3)))
def tied_then_untied():
    w = net()
    w.program.layers[0].weight = w.program.first.weight
    return w


@cases(tied=lambda w: setattr(w.program.layers[0], "weight", w.program.first.weight))
def untied_then_tied():
    return net()


@cases(requires_grad=lambda w: w.program.first.weight.requires_grad_(False))
def requires_grad_of_a_parameter_read():
    class Reader(Net):
        def forward(self, x):
            return x * (2 if self.first.weight.requires_grad else 5)

    return without_grad(world(Reader(), ramp(3)))


@cases(
    append=lambda w: w.program.layers.append(nn.Tanh()),
    insert=lambda w: w.program.layers.insert(0, nn.Tanh()),
    delete=lambda w: w.program.layers.__delitem__(1),
    replace=lambda w: w.program.layers.__setitem__(1, nn.Sigmoid()),
    reorder=lambda w: setattr(w.program, "layers", nn.ModuleList(reversed(w.program.layers))),
    attribute=lambda w: setattr(w.program, "first", nn.Identity()),
    other_class=lambda w: setattr(w.program.layers[1], "__class__", nn.Tanh),
)
def module_list_changed():
    return net()


@cases(
    append=lambda w: w.program.append(nn.Tanh()),
    replace=lambda w: w.program.__setitem__(0, nn.Sigmoid()),
    delete=lambda w: w.program.__delitem__(1),
)
def sequential_changed():
    return world(nn.Sequential(nn.Tanh(), nn.ReLU()), ramp(3, start=-1.0))


@cases(
    add=lambda w: w.program.table.update({"c": nn.Sigmoid()}),
    delete=lambda w: w.program.table.pop("a"),
    replace=lambda w: w.program.table.__setitem__("a", nn.Sigmoid()),
    order=lambda w: w.program.table.__setitem__("a", w.program.table.pop("a")),
)
def module_dict_changed():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Softplus()})

        def forward(self, x):
            for name, layer in self.table.items():
                x = layer(x) * len(name) * 2
            return x

    return world(Table(), ramp(3, start=-1.0))


@cases(same=lambda w: setattr(w.program, "b", w.program.a))
def submodule_by_identity():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.ReLU(), nn.ReLU()

        def forward(self, x):
            return x * 2 if self.a is self.b else x

    return world(Two(), ramp(3))


@cases(root=lambda w: w.program.eval(), only_the_dropout=lambda w: w.program[1].eval())
def training_to_eval():
    return world(nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), ramp(4, 3))


@cases(root=lambda w: w.program.train(), only_the_dropout=lambda w: w.program[1].train())
def eval_to_training():
    return world(nn.Sequential(nn.ReLU(), nn.Dropout(0.5)).eval(), ramp(4, 3))


@cases(deep=lambda w: w.program.inner.norm.eval(), back=lambda w: w.program.eval())
def training_of_a_nested_norm():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, affine=False)

        def forward(self, x):
            return self.norm(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) + 1

    return world(Outer(), ramp(4, 3))


class Configured(nn.Module):
    """Reads attributes of every kind."""

    limit = 3

    def __init__(self):
        super().__init__()
        self.config = Bag(width=2.0, names=["a"])
        self.sizes = [1, 2]
        self._gain = 1.5

    @property
    def gain(self):
        return self._gain * 2

    def forward(self, x):
        return x * self.gain * self.config.width + self.sizes[-1] + len(self.config.names) + self.limit


@cases(
    behind_a_property=attr("_gain", 4.0),
    of_a_plain_object=attr("config.width", 5.0),
    list_in_a_plain_object=lambda w: w.program.config.names.append("b"),
    list=lambda w: w.program.sizes.append(9),
    object_replaced=attr("config", Bag(width=8.0, names=[])),
    class_attribute_shadowed=attr("limit", 30),
)
def attributes_of_a_module():
    return world(Configured(), ramp(3))


@cases(scale=lambda w: setattr(w.args[1], "scale", 4.0), more=lambda w: setattr(w.args[1], "shift", 9.0))
def attribute_of_a_simple_namespace():
    return world(
        lambda x, o: x * o.scale + getattr(o, "shift", 1.0), ramp(3), types.SimpleNamespace(scale=2.0)
    )


@cases(
    computed=lambda w: w.args[1].table.update(alpha=4.0),
    real=lambda w: setattr(w.args[1], "alpha", 9.0),
)
def attribute_by_getattr_hook():
    class Lazy:
        def __init__(self):
            self.table = {"alpha": 2.0}

        def __getattr__(self, name):
            if name == "table":
                raise AttributeError(name)
            return self.table[name]

    return world(lambda x, o: x * o.alpha, ramp(3), Lazy())


@cases(slot=lambda w: setattr(w.args[1], "a", 5.0))
def attribute_in_a_slot():
    class Slotted:
        __slots__ = ("a",)

        def __init__(self):
            self.a = 2.0

    return world(lambda x, o: x * o.a, ramp(3), Slotted())


@cases(
    forward_hook=lambda w: w.program.register_forward_hook(lambda m, a, out: out * 3),
    forward_pre_hook=lambda w: w.program.register_forward_pre_hook(lambda m, a: (a[0] + 1,)),
    hook_on_a_submodule=lambda w: w.program[0].register_forward_hook(lambda m, a, out: out + 10),
    pre_hook_on_a_submodule=lambda w: w.program[1].register_forward_pre_hook(lambda m, a: (a[0] + 5,)),
    with_kwargs=lambda w: w.program[0].register_forward_hook(lambda m, a, k, out: out - 2, with_kwargs=True),
    parametrisation=lambda w: parametrize.register_parametrization(w.program[0], "weight", nn.Tanh()),
)
def hooks_added():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for i, p in enumerate(model.parameters()):
        p.data = ramp(*p.shape, start=float(i))
    return without_grad(world(model, ramp(2, 3)))


@cases(
    removed=lambda w: w.program[0]._forward_hooks.clear(),
    state=lambda w: w.program.handle.update(k=7.0),
)
def hook_removed():
    model = nn.Sequential(nn.Tanh(), nn.ReLU())
    model.handle = state = {"k": 2.0}
    model[0].register_forward_hook(lambda m, a, out: out * state["k"])
    return world(model, ramp(3))


@cases(
    removed=lambda w: parametrize.remove_parametrizations(w.program, "weight", leave_parametrized=False),
    original=lambda w: w.program.parametrizations.weight.original.data.mul_(2),
)
def parametrisation_removed():
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.data = ramp(3, 3)
    parametrize.register_parametrization(layer, "weight", nn.Tanh())
    return without_grad(world(layer, ramp(2, 3)))


@cases(
    number=lambda w: w.program.__globals__.update(scale=5.0),
    container=lambda w: w.program.__globals__["table"].update(k=5.0),
    function=lambda w: w.program.__globals__.update(helper=torch.sin),
    type=lambda w: w.program.__globals__.update(scale=2),
    deleted=lambda w: w.program.__globals__.pop("scale"),
)
def globals_rebound_or_mutated():
    def program(x):
        return helper(x) * scale + table["k"]  # noqa: F821 - given by with_globals

    return world(with_globals(program, scale=2.0, table={"k": 1.0}, helper=torch.cos), ramp(3))


@cases(appears=lambda w: w.program.__globals__.update(len=lambda xs: 7))
def builtin_shadowed_by_a_global():
    def program(x, xs):
        return x * len(xs)

    return world(with_globals(program), ramp(3), [1, 2])


@cases(
    attribute=lambda w: setattr(w.program.__globals__["configuration"], "gain", 6.0),
    absent=lambda w: delattr(w.program.__globals__["configuration"], "gain"),
)
def attribute_of_a_module_object():
    settings = types.ModuleType("settings")
    settings.gain = 2.0

    def program(x):
        return x * getattr(configuration, "gain", 0.5)  # noqa: F821 - given by with_globals

    return world(with_globals(program, configuration=settings), ramp(3))


@cases(rebound=lambda w: setattr(w.program.__closure__[0], "cell_contents", 5.0))
def closure_cell_rebound():
    k = 2.0
    return world(lambda x: x * k, ramp(3))


@cases(mutated=lambda w: w.program.__closure__[0].cell_contents.append(3.0))
def closure_cell_mutated():
    ks = [2.0]
    return world(lambda x: x * sum(ks), ramp(3))


@cases(hits=False, reset=lambda w: w.program.__globals__.update(n=10))
def global_read_again_after_a_write():
    def program(x):
        global n
        n = n + 1
        return x * n

    return world(with_globals(program, n=0), ramp(3))


@cases(
    forward_on_the_instance=lambda w: setattr(w.program.inner, "forward", lambda x: x - 5),
    forward_on_the_class=lambda w: setattr(type(w.program.inner), "forward", lambda self, x: x - 7),
    method_on_the_class=lambda w: setattr(type(w.program), "helper", lambda self, x: x * 9),
    method_on_the_instance=lambda w: setattr(w.program, "helper", lambda x: x * 11),
    call_on_the_class=lambda w: setattr(type(w.program.inner), "__call__", lambda self, x: x * 13),
    root_forward=lambda w: setattr(type(w.program), "forward", lambda self, x: x * 17),
)
def methods_replaced():
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def helper(self, x):
            return x + 1

        def forward(self, x):
            return self.helper(self.inner(x))

    return world(Outer(), ramp(3))


@cases(function=lambda w: setattr(w.program.__globals__["tools"], "combine", lambda a: a - 1))
def function_of_a_user_library_replaced():
    library = types.ModuleType("library")
    library.combine = lambda a: a + 1

    def program(x):
        return tools.combine(x) * 2  # noqa: F821 - given by with_globals

    return world(with_globals(program, tools=library), ramp(3))


@cases(
    base=lambda w: setattr(type(w.args[1]).__mro__[1], "scale", lambda self: 5.0),
    override=lambda w: setattr(type(w.args[1]), "scale", lambda self: 7.0),
)
def inherited_method_replaced():
    class Base:
        def scale(self):
            return 2.0

    class Derived(Base):
        pass

    return world(lambda x, o: x * o.scale(), ramp(3), Derived())


def test_a_function_of_torch_replaced_after_the_first_call_is_noticed(monkeypatch):
    def program(x):
        return torch.nn.functional.relu(x)

    x, compiled = ramp(3, start=-1.0), thunder.jit(program)
    assert torch.equal(compiled(x), program(x))
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: x * 5)
    assert torch.equal(compiled(x), program(x))


def test_ordered_dict_moved_to_end_is_noticed():
    table = collections.OrderedDict(a=2.0, b=3.0)

    def program(x):
        for k in table:
            x = x * 2 + table[k]
        return x

    compiled = thunder.jit(program)
    assert torch.equal(compiled(ramp(3)), program(ramp(3)))
    table.move_to_end("a")
    assert torch.equal(compiled(ramp(3)), program(ramp(3)))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)

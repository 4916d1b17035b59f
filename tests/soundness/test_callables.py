"""Functions, argument lists, attributes, types, identity, iterators and arrays."""

from __future__ import annotations

import functools
import types

import numpy
import torch

import thunder
from soundness.harness import Bag, Cases, arg, check_case, kwarg, ramp, world

cases = Cases()


def double(x):
    return x * 2


def triple(x):
    return x * 3


def scaler(scale):
    def scale_by(x):
        return x * scale

    return scale_by


class Shift:
    def __init__(self, shift):
        self.shift = shift

    def apply(self, x):
        return x + self.shift

    def __call__(self, x):
        return x - self.shift


@cases(other=arg(1, triple), torch=arg(1, torch.sin), closure=lambda w: w.args.__setitem__(1, scaler(5.0)))
def function_argument():
    return world(lambda x, f: f(x), ramp(3), double)


@cases(
    closure=lambda w: w.args.__setitem__(1, scaler(3.0)),
    cell=lambda w: setattr(w.args[1].__closure__[0], "cell_contents", 4.0),
)
def closure_of_the_same_code():
    return world(lambda x, f: f(x), ramp(3), scaler(2.0))


@cases(
    argument=lambda w: w.args.__setitem__(1, functools.partial(torch.mul, other=3.0)),
    function=lambda w: w.args.__setitem__(1, functools.partial(torch.add, other=2.0)),
    keywords=lambda w: w.args[1].keywords.update(other=7.0),
)
def partial_argument():
    return world(lambda x, f: f(x), ramp(3), functools.partial(torch.mul, other=2.0))


@cases(
    object=lambda w: w.args.__setitem__(1, Shift(3.0).apply),
    method=lambda w: w.args.__setitem__(1, Shift(2.0).__call__),
    state=lambda w: setattr(w.args[1].__self__, "shift", 9.0),
)
def bound_method_argument():
    return world(lambda x, f: f(x), ramp(3), Shift(2.0).apply)


@cases(state=lambda w: setattr(w.args[1], "shift", 9.0), function=arg(1, double))
def callable_object_argument():
    return world(lambda x, f: f(x), ramp(3), Shift(2.0))


@cases(code=lambda w: setattr(w.args[1], "__code__", triple.__code__))
def code_of_a_function_replaced():
    def own(x):
        return x * 2

    twin = types.FunctionType(own.__code__, globals())
    return world(lambda x, f: f(x), ramp(3), twin)


@cases(more=lambda w: w.args[1].append(triple), order=lambda w: w.args[1].reverse())
def functions_in_a_list():
    def program(x, fs):
        for f in fs:
            x = f(x)
        return x

    return world(program, ramp(3), [double, torch.sin])


@cases(cell=lambda w: setattr(w.program.__closure__[0], "cell_contents", 4.0))
def the_program_itself_is_a_closure():
    return world(scaler(2.0), ramp(3))


@cases(argument=lambda w: w.program.keywords.update(k=5.0))
def the_program_itself_is_a_partial():
    return world(functools.partial(lambda x, k: x * k, k=2.0), ramp(3))


@cases(state=lambda w: setattr(w.program.__self__, "shift", 5.0))
def the_program_itself_is_a_bound_method():
    return world(Shift(2.0).apply, ramp(3))


@cases(state=lambda w: setattr(w.program, "shift", 5.0))
def the_program_itself_is_a_callable_object():
    return world(Shift(2.0), ramp(3))


@cases(
    more=lambda w: w.args.append(3.0),
    fewer=lambda w: w.args.pop(),
    none=lambda w: w.args.__delitem__(slice(1, None)),
)
def count_of_star_arguments():
    return world(lambda x, *rest: x * len(rest) + sum(rest), ramp(3), 1.0, 2.0)


@cases(
    add=lambda w: w.kwargs.update(b=3.0),
    drop=lambda w: w.kwargs.clear(),
    rename=lambda w: w.kwargs.update(c=w.kwargs.pop("a")),
)
def names_of_keyword_arguments():
    def program(x, **options):
        for name, value in options.items():
            x = x * value + ord(name)
        return x

    return world(program, ramp(3), a=2.0)


@cases(given=lambda w: w.args.append(5.0), keyword=kwarg("k", 5.0))
def default_then_given():
    def program(x, k=2.0):
        return x * k

    return world(program, ramp(3))


@cases(absent=lambda w: w.args.pop(), keyword=lambda w: w.kwargs.update(k=w.args.pop()))
def given_then_default():
    def program(x, k=2.0):
        return x * k

    return world(program, ramp(3), 5.0)


@cases(rebound=lambda w: setattr(w.program, "__defaults__", (7.0,)))
def defaults_of_the_program_rebound():
    def program(x, k=2.0):
        return x * k

    return world(program, ramp(3))


@cases(mutated=lambda w: w.program.__defaults__[0].append(4.0))
def mutable_default_mutated():
    def program(x, scales=[2.0]):  # noqa: B006 - the trap under test
        return x * sum(scales)

    return world(program, ramp(3))


@cases(rebound=lambda w: w.program.__kwdefaults__.update(k=4.0))
def keyword_only_default_rebound():
    def program(x, *, k=2.0):
        return x * k

    return world(program, ramp(3))


@cases(
    mutated=lambda w: w.args[1].__defaults__[0].update(k=4.0),
    rebound=lambda w: setattr(w.args[1], "__defaults__", ({"k": 9.0},)),
)
def default_of_a_function_called():
    def inner(x, options={"k": 2.0}):  # noqa: B006 - the trap under test
        return x * options["k"]

    return world(lambda x, f: f(x), ramp(3), inner)


@cases(appears=lambda w: setattr(w.args[1], "bias", 5.0), none=lambda w: setattr(w.args[1], "bias", None))
def hasattr_of_an_absent_attribute():
    return world(lambda x, o: x + 1 if hasattr(o, "bias") else x, ramp(3), Bag(scale=2.0))


@cases(vanishes=lambda w: delattr(w.args[1], "scale"), changes=lambda w: setattr(w.args[1], "scale", 4.0))
def getattr_with_default():
    return world(
        lambda x, o: x * getattr(o, "scale", 7.0) + getattr(o, "shift", 0.5),
        ramp(3),
        Bag(scale=2.0),
    )


@cases(
    appears=lambda w: setattr(w.args[1], "beta", 5.0),
    changes=lambda w: setattr(w.args[1], "alpha", 4.0),
)
def vars_of_an_object():
    return world(lambda x, o: x * sum(vars(o).values()), ramp(3), Bag(alpha=2.0))


@cases(
    appears=lambda w: setattr(w.args[1], "beta", 5.0),
    changes=lambda w: w.args[1].__dict__.update(alpha=4.0),
)
def dict_of_an_object():
    def program(x, o):
        for name in o.__dict__:
            x = x * o.__dict__[name]
        return x

    return world(program, ramp(3), Bag(alpha=2.0))


@cases(appears=lambda w: setattr(w.args[1], "beta", 5.0))
def dir_of_an_object():
    return world(
        lambda x, o: x * len([n for n in dir(o) if not n.startswith("_")]),
        ramp(3),
        Bag(alpha=2.0),
    )


class A:
    factor = 2.0


class B(A):
    factor = 3.0


class Tagged(torch.Tensor):
    pass


@cases(subclass=lambda w: w.args.__setitem__(1, B()), number=arg(1, 2))
def isinstance_of_an_object():
    return world(lambda x, o: x * 2 if isinstance(o, B) else x - 1 if isinstance(o, A) else x, ramp(3), A())


@cases(swapped=lambda w: setattr(w.args[1], "__class__", B))
def class_of_an_object_swapped():
    return world(lambda x, o: x * o.factor, ramp(3), A())


@cases(subclass=arg(1, B), unrelated=arg(1, int))
def issubclass_of_a_class():
    return world(lambda x, c: x * 2 if issubclass(c, B) else x, ramp(3), A)


@cases(parameter=lambda w: w.args.__setitem__(0, torch.nn.Parameter(w.args[0], requires_grad=False)))
def tensor_or_parameter():
    return world(lambda x: x * 2 if isinstance(x, torch.nn.Parameter) else x + 1, ramp(3))


@cases(tensor=lambda w: w.args.__setitem__(0, w.args[0].data))
def parameter_or_tensor():
    return world(
        lambda x: x * 2 if type(x) is torch.nn.Parameter else x + 1,
        torch.nn.Parameter(ramp(3), requires_grad=False),
    )


@cases(
    may_refuse="UnsupportedProgram",
    subclass=lambda w: w.args.__setitem__(0, w.args[0].as_subclass(Tagged)),
)
def tensor_or_subclass():
    return world(lambda x: x * 2 if type(x) is torch.Tensor else x + 1, ramp(3))


@cases(
    attribute=lambda w: setattr(w.args[1], "factor", 5.0),
    deleted=lambda w: delattr(w.args[1], "factor"),
)
def class_object_argument():
    class Config(A):
        factor = 4.0

    return world(lambda x, c: x * c.factor, ramp(3), Config)


@cases(
    attribute=lambda w: setattr(type(w.args[1]), "factor", 5.0),
    shadowed=lambda w: setattr(w.args[1], "factor", 7.0),
)
def class_attribute_through_an_instance():
    class Config:
        factor = 4.0

    return world(lambda x, c: x * c.factor, ramp(3), Config())


@cases(separate=lambda w: w.args.__setitem__(1, w.args[0].clone()))
def same_tensor_twice_then_two():
    t = ramp(3)
    return world(lambda a, b: a * 2 if a is b else a + b, t, t)


@cases(same=lambda w: w.args.__setitem__(1, w.args[0]))
def two_tensors_then_one():
    return world(lambda a, b: a * 2 if a is b else a + b + 1, ramp(3), ramp(3))


@cases(same=lambda w: w.args.__setitem__(1, w.args[0]))
def two_lists_then_one():
    return world(lambda a, b, x: x * 2 if a is b else x, [1.0], [1.0], ramp(3))


@cases(separate=lambda w: w.args[0].__setitem__(1, w.args[0][0].clone()))
def shared_tensor_in_a_container_given_back():
    t = ramp(3)
    return world(lambda xs: (xs[0], xs[1], xs[0] * 2), [t, t])


@cases(other=lambda w: setattr(w.args[1], "b", Bag(n=3.0)))
def shared_object_by_two_attributes():
    inner = Bag(n=2.0)
    return world(lambda x, o: x * o.a.n + o.b.n if o.a is o.b else x, ramp(3), Bag(a=inner, b=inner))


@cases(
    hits=False,
    may_refuse="UnsupportedProgram",
    fresh=lambda w: w.args.__setitem__(1, iter([5.0, 6.0])),
)
def list_iterator_consumed():
    return world(lambda x, it: x * next(it), ramp(3), iter([1.0, 2.0, 3.0, 4.0, 5.0]))


@cases(
    hits=False,
    may_refuse="UnsupportedProgram",
    fresh=lambda w: w.args.__setitem__(1, (n * 3.0 for n in range(1, 9))),
)
def generator_consumed():
    return world(lambda x, it: x * next(it), ramp(3), (n * 2.0 for n in range(1, 9)))


@cases(
    hits=False,
    may_refuse="UnsupportedProgram",
    fresh=lambda w: w.args.__setitem__(1, enumerate([5.0, 6.0])),
)
def iterator_exhausted():
    return world(lambda x, it: x + sum(i * v for i, v in it), ramp(3), enumerate([1.0, 2.0]))


@cases(
    may_refuse="UnsupportedProgram",
    values=arg(1, numpy.array([4.0, 5.0, 6.0])),
    shape=arg(1, numpy.array([4.0])),
)
def numpy_array_argument():
    return world(lambda x, a: x + torch.as_tensor(a), ramp(3), numpy.array([1.0, 2.0, 3.0]))


@cases(may_refuse="UnsupportedProgram", values=lambda w: w.args[1].fill(9.0))
def numpy_array_element_read():
    return world(lambda x, a: x * float(a[0]), ramp(3), numpy.array([1.0, 2.0, 3.0]))


@cases(may_refuse="UnsupportedProgram", value=arg(1, numpy.float32(4.0)))
def numpy_scalar_argument():
    return world(lambda x, n: x * float(n), ramp(3), numpy.float32(2.0))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)

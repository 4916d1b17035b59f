"""Programs with tensors that compute by themselves, in two worlds: eager's, and the compiled program's."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from frontend.objects.computing_tensors import (
    CONFIG,
    Logged,
    Masked,
    Pair,
    Scaled,
    described,
    pair,
    plain_sum,
    scaled,
)
from sweeping import one_in


class World:
    """A function, its arguments in each call, the leaves that get gradients, and other state."""

    def __init__(self, fn, args, leaves=(), state=None):
        self.fn, self.args, self.leaves, self.state = fn, args, leaves, state


PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def simple(name, fn, weight=scaled, leaves=True):
    """A function of a plain tensor and a tensor that computes, another one in each call."""

    def make():
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        weights = [weight(seed=i // 2) for i in range(4)]
        return World(fn, lambda i: (x * 1 if not leaves else x, weights[i]), [x], weights)

    PROGRAMS[name] = make


X = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul of t": lambda x, w: x @ w.t(),
    "matmul of T": lambda x, w: x @ w.T,
    "scale": lambda x, w: x * w.scale,
    "user's method": lambda x, w: x @ w.dequantize(),
    "user's property": lambda x, w: x * w.largest,
    "returned": lambda x, w: w,
    "detached": lambda x, w: w.detach(),
    "detached, used": lambda x, w: x @ w.detach(),
    "clone and plain": lambda x, w: (w.clone(), x + 1),
    "scaled by a number": lambda x, w: (w * 2, x * (w * 3).scale),
    "to dtype": lambda x, w: (w.to(torch.float64), w.double().dtype),
    "isinstance": lambda x, w: x * 2 if isinstance(w, Scaled) else x,
    "type": lambda x, w: (type(w) is Scaled, type(w).__name__, w.__class__ is Scaled),
    "type of result": lambda x, w: type(w.t()).__name__,
    "metadata": lambda x, w: (w.shape, w.dtype, w.ndim, w.size(0), w.dim(), len(w), w.numel(), w.layout),
    "device": lambda x, w: (w.device, w.is_cuda, str(w.device)),
    "is_floating_point": lambda x, w: (w.is_floating_point(), torch.is_tensor(w), torch.is_floating_point(w)),
    "attribute that is a number": lambda x, w: x * w.block,
    "attribute that is an object": lambda x, w: x * w.config.factor * len(w.config.names),
    "class method": lambda x, w: Scaled.from_plain(x.detach()),
    "made in the program": lambda x, w: x @ Scaled(x.detach().round(), w.scale),
    "attribute is itself": lambda x, w: (w.scale is w.scale, w.scale is w.numbers, w is w),
    "hasattr": lambda x, w: (hasattr(w, "scale"), hasattr(w, "nothing"), getattr(w, "nothing", 3)),
    "indexed": lambda x, w: x * w[0],
    "indexed by slices": lambda x, w: x[1:] * w[1:],
    "iterated": lambda x, w: [row * 2 for row in w],
    "unpacked": lambda x, w: (lambda a, b, c, d: a + d)(*w),
    "in a list": lambda x, w: torch.cat([x, w]),
    "stacked with itself": lambda x, w: torch.stack([w, w]),
    "chain": lambda x, w: F.linear(F.linear(x, w).relu(), w.t().t()),
    "sum of it": lambda x, w: w.sum() * x,
    "decision": lambda x, w: x * 2 if w.sum() > 0 else x - 1,
    "item": lambda x, w: x * w.sum().item(),
    "truth of an element": lambda x, w: x * 2 if w.max() > 1 else x,
    "float of it": lambda x, w: x * float(w[0, 0]),
    "comparison": lambda x, w: (w > 0, (w == w).all()),
    "no_grad": lambda x, w: _no_grad(x, w),
    "dict": lambda x, w: {"w": w, "t": w.t(), "y": x @ w},
    "as a key of a dict": lambda x, w: {w: 1}[w],
    "in list": lambda x, w: any(v is w for v in [x, w]),
    "assigned attribute": lambda x, w: _with_attribute(x, w),
    "setattr": lambda x, w: (setattr(w, "block", w.block + 1), x * w.block)[1],
    "written": lambda x, w: (w.copy_(torch.ones(4, 4)), x @ w)[1],
    "scaled in place": lambda x, w: (w.mul_(2), x @ w, w.scale)[1:],
    "scaled by augmented assignment": lambda x, w: _augmented(x, w),
    "as torch.Tensor": lambda x, w: x + torch.add(w, 1),
    "keyword arguments": lambda x, w: F.linear(input=x, weight=w, bias=None),
    "python function of torch": lambda x, w: F.pairwise_distance(x, w),
    "aten": lambda x, w: torch.ops.aten.mm.default(x, w),
    "aten, packet": lambda x, w: torch.ops.aten.mm(x, w),
    "autocast": lambda x, w: _autocast(x, w.to(torch.bfloat16)),
    "error": lambda x, w: x @ w[:3],
    "error that is handled": lambda x, w: _handled(x, w),
    "missing attribute": lambda x, w: w.nothing,
    "deepcopy": lambda x, w: x @ copy.deepcopy(w),
    "try attribute": lambda x, w: _tried(x, w),
    "einsum": lambda x, w: torch.einsum("ij,kj->ik", x, w),
    "operator": lambda x, w: operator.matmul(x, w),
    "text": lambda x, w: f"{type(w).__name__} {tuple(w.shape)}",
    "numpy": lambda x, w: x * float(w.dequantize().numpy().max()),
    "tolist": lambda x, w: sum(w.dequantize().tolist()[0]),
    "reads of two": lambda x, w: (w.scale.is_contiguous(), w.numbers.dtype, w.scale * 2, w.numbers + 1),
}
for _name, _fn in X.items():
    simple(_name, _fn)

P = {
    "pair: returned": lambda x, w: w + 1,
    "pair: product": lambda x, w: w * x,
    "pair: parts": lambda x, w: (w.first + x, w.second * 2),
    "pair: linear": lambda x, w: F.linear(x, w),
    "pair: chain": lambda x, w: F.relu(w.t() @ x).sum(),
    "pair: split": lambda x, w: w.split(2),
    "pair: unbind": lambda x, w: [r * 2 for r in w.unbind()],
    "pair: in place": lambda x, w: w.add_(1),
    "pair: view": lambda x, w: w.view(2, 8),
    "pair: sum of parts": lambda x, w: (w * x).first.sum(),
    "pair: repr": lambda x, w: repr(w),
    "pair: made": lambda x, w: Pair(x.detach(), x.detach() * 2) * w,
    "pair: is": lambda x, w: (w.first is w.first, w.first is w.second),
}
for _name, _fn in P.items():
    simple(_name, _fn, pair)
for _name in ("pair: returned", "pair: product", "pair: linear", "pair: chain", "pair: split", "pair: view"):
    simple(_name + ", with gradients", P[_name], lambda seed: pair(seed, requires_grad=True))
for _name in ("linear", "matmul of t", "chain", "to dtype", "scaled by a number", "sum of it", "no_grad"):
    simple(_name + ", with gradients", X[_name], lambda seed: scaled(seed, requires_grad=True))


def _no_grad(x, w):
    with torch.no_grad():
        return F.linear(x, w) * 2


def _with_attribute(x, w):
    w.note = "used"
    w.factor = x.detach().sum()
    return x * w.factor, w.note


def _augmented(x, w):
    w *= 2
    return x @ w


def _autocast(x, w):
    with torch.autocast("cpu"):
        return F.linear(x, w).float()


def _handled(x, w):
    try:
        return x @ w[:3]
    except RuntimeError:
        return x * 3


def _tried(x, w):
    try:
        return x * w.nothing
    except AttributeError:
        return x - 1


class Layers(nn.Module):
    def __init__(self, weight, trains=False):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=trains)
        self.linear = nn.Linear(4, 4)
        self.kept = [weight, {"w": weight}]

    def forward(self, x):
        return self.linear(F.linear(x, self.weight)) @ self.weight.t() + self.kept[1]["w"].sum()


@program
def module_with_a_frozen_weight():
    torch.manual_seed(0)
    model, x = Layers(scaled()), torch.ones(2, 4, requires_grad=True)

    def args(i):
        if i == 2:
            model.weight = nn.Parameter(scaled(5), requires_grad=False)
        if i == 3:
            with torch.no_grad():
                model.weight.mul_(2)
        return (x,)

    return World(model, args, [x, *model.linear.parameters()], model.weight)


@program
def module_with_a_weight_that_learns():
    torch.manual_seed(0)
    model, x = Layers(scaled(), trains=True), torch.ones(2, 4, requires_grad=True)
    return World(model, lambda i: (x * (i + 1),), [x, *model.parameters()])


@program
def module_whose_weight_begins_to_learn():
    torch.manual_seed(0)
    model, x = Layers(scaled()), torch.ones(2, 4, requires_grad=True)

    def args(i):
        model.weight.requires_grad_(i % 2 == 1)
        return (x,)

    return World(model, args, [x, model.weight])


GLOBAL = [scaled()]
WEIGHT = scaled()


@program
def global_weight():
    def args(i):
        globals()["WEIGHT"] = scaled(i // 2)
        return (torch.ones(2, 4),)

    return World(lambda x: x @ WEIGHT, args)


@program
def weight_in_a_closure():
    weight = scaled()

    def args(i):
        nonlocal weight
        weight = scaled(i)
        return (torch.ones(2, 4),)

    return World(lambda x: x @ weight * weight.scale.sum(), args)


@program
def weight_in_containers():
    return World(
        lambda tree, x: x @ tree["layers"][0] + tree["layers"][1][0].scale.T,
        lambda i: ({"layers": [scaled(i), (scaled(i + 1), 3)]}, torch.ones(2, 4)),
    )


@program
def another_class_in_its_place():
    weights = [scaled(), torch.ones(4, 4), pair(), scaled(2)]
    return World(lambda x, w: (w * 2, x), lambda i: (torch.ones(2, 4), weights[i]))


@program
def other_sizes():
    return World(
        lambda x, w: (F.linear(x, w), w.shape[0]),
        lambda i: (torch.ones(2 + i, 4), scaled(i, rows=3 + i // 2)),
    )


@program
def changed_attributes():
    w = scaled()

    def args(i):
        w.block = i // 2
        w.scale = w.scale * 2
        return (torch.ones(2, 4),)

    return World(lambda x: x @ w * w.block, args)


@program
def changed_object_of_an_attribute():
    w = scaled()

    def args(i):
        CONFIG.factor = float(i // 2)
        return (torch.ones(2, 4),)

    return World(lambda x: x @ w * w.config.factor, args)


@program
def changed_method_of_the_class():
    w = scaled()

    def args(i):
        factor = i // 2
        Scaled.weighted = lambda self, x: x * self.scale * factor
        return (torch.ones(4, 4),)

    return World(lambda x: w.weighted(x), args)


@program
def two_names_for_one_weight():
    a, b = scaled(), scaled(1)
    return World(lambda x, v, w: (x @ v, x @ w, v is w), lambda i: (torch.ones(2, 4), a, a if i % 2 else b))


@program
def weight_that_another_shares():
    a = scaled()
    return World(lambda v, w: (v is w, v), lambda i: (a, a if i > 1 else scaled(1)))


@program
def log_of_operators():
    log = []
    w = Logged(torch.ones(4, 4), log)
    return World(lambda x: (x + (w * 2).inner, len(w)), lambda i: (torch.ones(4, 4) * i,), state=log)


@program
def masked_data():
    masks = [torch.eye(4), torch.ones(4, 4)]
    return World(
        lambda x, m: (F.relu(m), m.sum() * x, m + 1, (m * x).mask),
        lambda i: (torch.ones(4, 4) * i, Masked(torch.linspace(-1, 1, 16).reshape(4, 4), masks[i // 2])),
    )


@program
def masked_tensor_of_torch():
    def fn(x, data, mask):
        masked = torch.masked.masked_tensor(data, mask)
        return masked.sum().get_data() * x

    return World(
        fn, lambda i: (torch.ones(2), torch.arange(4.0) + i, torch.tensor([True, False, True, i > 1]))
    )


@program
def masked_tensor_as_argument():
    return World(
        lambda m: (m * 2, m.get_data() + 1, m.get_mask()),
        lambda i: (
            torch.masked.masked_tensor(torch.arange(4.0) + i, torch.tensor([True, False, True, i > 1])),
        ),
    )


def coo(i):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 3], [2, 0, i]]), torch.arange(3.0) + i + 1, (4, 4))


S = {
    "sparse: mm": lambda s, x: torch.sparse.mm(s, x),
    "sparse: matmul": lambda s, x: s @ x,
    "sparse: dense": lambda s, x: s.to_dense() * x,
    "sparse: values": lambda s, x: (s.coalesce().values() * 2, s.coalesce().indices()),
    "sparse: returned": lambda s, x: s * 2,
    "sparse: sum": lambda s, x: torch.sparse.sum(s, 0),
    "sparse: layout": lambda s, x: (s.layout, s.is_sparse, s._nnz()),
    "sparse: made": lambda s, x: (x.to_sparse(), x.to_sparse() @ x),
    "sparse: transposed": lambda s, x: s.t() @ x,
    "sparse: csr": lambda s, x: s.to_sparse_csr() @ x,
    "sparse: decision": lambda s, x: x * 2 if s._nnz() > 2 else x,
    "sparse: constructed": lambda s, x: (
        torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), x[0, :2], (4, 4)) @ x
    ),
}


def sparse_program(fn, make_sparse):
    def make():
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        return World(fn, lambda i: (make_sparse(i), x), [x])

    return make


for _name, _fn in S.items():
    PROGRAMS[_name] = sparse_program(_fn, coo)
PROGRAMS["sparse: csr argument"] = sparse_program(
    lambda s, x: (s @ x, s.crow_indices()), lambda i: coo(i).to_sparse_csr()
)


@program
def sparse_with_gradients():
    values = torch.arange(1.0, 4.0).requires_grad_()
    x = torch.ones(4, 4, requires_grad=True)
    indices = torch.tensor([[0, 1, 3], [2, 0, 1]])

    def fn(s, x):
        return torch.sparse.mm(s, x) * 2

    return World(fn, lambda i: (torch.sparse_coo_tensor(indices, values * (i + 1), (4, 4)), x), [x, values])


@program
def sparse_as_a_buffer():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("adjacency", coo(0))
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.sparse.mm(self.adjacency, self.linear(x)).relu()

    torch.manual_seed(0)
    model, x = Graph(), torch.ones(4, 4, requires_grad=True)

    def args(i):
        if i == 2:
            model.adjacency = coo(1)
        return (x,)

    return World(model, args, [x, *model.parameters()])


@program
def nested():
    return World(
        lambda n: (n * 2, n.size(0), torch.nested.to_padded_tensor(n, 0.0) + 1),
        lambda i: (torch.nested.nested_tensor([torch.ones(2 + i // 2, 3), torch.ones(4, 3)]),),
    )


@program
def nested_jagged():
    return World(
        lambda n: (n * 2, n.values() + 1, n.offsets()),
        lambda i: (
            torch.nested.nested_tensor([torch.ones(2 + i // 2, 3), torch.ones(4, 3)], layout=torch.jagged),
        ),
    )


@program
def nested_made():
    return World(
        lambda a, b: torch.nested.to_padded_tensor(torch.nested.nested_tensor([a, b]) * 2, 0.0),
        lambda i: (torch.ones(2 + i // 2, 3), torch.ones(4, 3)),
    )


@program
def quantized():
    return World(
        lambda q, x: (q.dequantize() * x, q.q_scale(), q.int_repr(), q.dtype),
        lambda i: (torch.quantize_per_tensor(torch.arange(4.0) + i, 0.5, 1, torch.quint8), torch.ones(4)),
    )


@program
def quantized_in_the_program():
    return World(
        lambda x: torch.quantize_per_tensor(x, 0.5, 1, torch.quint8).dequantize() + 1,
        lambda i: (torch.arange(4.0) + i,),
    )


class Metres(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@program
def only_torch_function():
    return World(
        lambda m, w, x: (m * 2, x @ w, type(m).__name__),
        lambda i: (torch.ones(3).as_subclass(Metres) * i, scaled(), torch.ones(2, 4)),
    )


@program
def parameter_made_of_it():
    return World(
        lambda x, w: F.linear(x, nn.Parameter(w, requires_grad=False)),
        lambda i: (torch.ones(2, 4), scaled(i)),
    )


@program
def training_step_outside():
    torch.manual_seed(0)
    model, x = Layers(pair(requires_grad=False)), torch.ones(2, 4)
    model.forward = lambda x: (model.linear(x) * model.weight[0]).first
    optimizer = torch.optim.SGD(model.linear.parameters(), lr=0.1)

    def args(i):
        if i:
            optimizer.step()
        return (x,)

    return World(model.forward, args, list(model.linear.parameters()))


@program
def function_marked_opaque_takes_it():
    @thunder.opaque
    def product(x, w):
        return w.t(), x @ w

    return World(lambda x, w: product(x * 2, w), lambda i: (torch.ones(2, 4), scaled(i)))


@program
def custom_function_around_it():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.w = w
            return x @ w

        @staticmethod
        def backward(ctx, g):
            return g @ ctx.w.dequantize().t(), None

    x = torch.ones(2, 4, requires_grad=True)
    return World(lambda x, w: Product.apply(x, w) * 2, lambda i: (x, scaled(i)), [x])


def run(make, compiles):
    """Return what four calls of a program give: results, state, gradients, errors."""
    world, seen = make(), []
    fn = thunder.jit(world.fn) if compiles else world.fn
    for i in range(4):
        args = world.args(i)
        try:
            result = fn(*args)
        except thunder.UnsupportedProgram:
            raise
        except Exception as error:
            seen.append((type(error).__mro__[-4:], str(error).splitlines()[0][:40]))
            continue
        seen.append(described(result))
        total = plain_sum(result)
        if total.requires_grad:
            total.backward()
        seen.append([described(leaf.grad) for leaf in world.leaves])
        seen.append(
            described([leaf.grad for leaf in args if isinstance(leaf, torch.Tensor) and leaf.is_leaf])
        )
        seen.append(described([args, world.state]))
    if compiles and not any(isinstance(part, tuple) and isinstance(part[0], tuple) for part in seen):
        assert thunder.compile_stats(fn).runs_by_python == 0
    return seen


@pytest.mark.parametrize("name", one_in(5, PROGRAMS))
def test_programs_agree_with_eager(name):
    _assert_equal(run(PROGRAMS[name], compiles=True), run(PROGRAMS[name], compiles=False))


SHARED = {
    "part read before a write": lambda x, w: (w.first * 2, w.add_(1), w.first * 3, x + w.first),
    "part kept over a write": lambda x, w: _kept(x, w),
    "part that is written": lambda x, w: (w.first.add_(1), x)[1],
    "values of a sparse tensor": lambda x, w: (lambda s: (s._values() * 2, s.mul_(2), s._values() * 3))(
        x.to_sparse()
    ),
    "argument that is a part": lambda x, w: (lambda v: (v.first * 2, x * 2, x.add_(1), v.first * 3))(
        Pair(x, x)
    ),
}


def _kept(x, w):
    first = w.first
    before = first * 2
    w.add_(1)
    return before, first * 2


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_is_shared_is_as_eagers_or_refused(name):
    x, w, y, v = torch.ones(4, 4), pair(), torch.ones(4, 4), pair()
    try:
        found = thunder.jit(SHARED[name])(x, w)
    except thunder.UnsupportedProgram:
        return
    _assert_equal(described((found, x, w)), described((SHARED[name](y, v), y, v)))


def _assert_equal(found, expected):
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        for a, b in zip(found, expected, strict=True):
            _assert_equal(a, b)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            _assert_equal(found[key], expected[key])
    else:
        assert found == expected, (found, expected)

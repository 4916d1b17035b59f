"""Functions and classes of packages with modules in C, called with data of tensors."""

import numpy as np
import pytest
import torch

import thunder
from sweeping import one_in

scipy = pytest.importorskip("scipy")
pytest.importorskip("scipy.spatial")
pytest.importorskip("scipy.optimize")


def neighbours(x):
    tree = scipy.spatial.cKDTree(x.detach().numpy())
    _, places = tree.query(x.detach().numpy(), k=3)
    return x[torch.from_numpy(places)].mean(1)


def assignment(x):
    with torch.no_grad():
        rows, columns = scipy.optimize.linear_sum_assignment((x @ x.T).numpy())
    return (x @ x.T)[rows, columns].sum()


class InverseRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        array = x.detach().numpy()
        root = scipy.linalg.sqrtm(array @ array.T + np.eye(len(array)))
        result = torch.from_numpy(scipy.linalg.inv(root).real).float()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        return g[:, :3] * ctx.saved_tensors[0][:, :3]


PROGRAMS = {
    "object of a class in C": neighbours,
    "attributes of an object": lambda x: (lambda tree: (tree.n, tree.m, x * tree.n))(
        scipy.spatial.cKDTree(x.detach().numpy())
    ),
    "one object twice": lambda x: (lambda tree: tree.query(np.zeros(3))[1] + tree.query(np.ones(3))[1])(
        scipy.spatial.cKDTree(x.detach().numpy())
    ),
    "without gradients": assignment,
    "custom function": lambda x: InverseRoot.apply(x).sum(),
    "function in Python": lambda x: torch.from_numpy(scipy.spatial.distance.cdist(*[x.detach().numpy()] * 2)),
    "object that is called": lambda x: scipy.interpolate.interp1d(np.arange(8), x[:, 0].detach().numpy())(
        2.5
    ),
    "class in Python": lambda x: scipy.spatial.ConvexHull(x.detach().numpy()).volume,
    "arrays that are known": lambda x: scipy.linalg.svd(x.detach().numpy() * 2)[1],
    "numbers": lambda x: scipy.stats.kendalltau(x[:, 0].detach().numpy(), x[:, 1].detach().numpy())[0],
    "missing attribute": lambda x: hasattr(scipy.spatial.cKDTree(x.detach().numpy()), "nothing"),
}


def outcome(fn, x):
    result = fn(x)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.square().sum().backward()
    gradient, x.grad = x.grad, None
    return type(result), result, gradient


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_programs_agree_with_eager(name):
    pytest.importorskip("scipy.interpolate")
    pytest.importorskip("scipy.stats")
    program, compiled = PROGRAMS[name], thunder.jit(PROGRAMS[name])
    for seed in range(4):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        cls, result, gradient = outcome(compiled, x)
        expected_cls, expected, expected_gradient = outcome(program, x)
        assert cls is expected_cls
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(gradient, expected_gradient)
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_the_object_is_made_in_each_call_of_one_program():
    compiled = thunder.jit(neighbours)
    for seed in range(3):
        compiled(torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)))
    assert thunder.cache_misses(compiled) == 1

"""Cases of libraries of probability, Gaussian processes, differential equations and manifolds."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded


def twice(*makers):
    """Return the arguments of two calls: of each, what the functions return."""
    return [tuple(make() for make in makers) for _ in range(2)]


def numbers(*shape):
    return lambda: graded(*shape)


# -- pyro
@case("pyro.Normal")
def _():
    import pyro.distributions as dist

    def log_prob(mean, scale, x):
        return dist.Normal(mean, scale.exp()).to_event(1).log_prob(x)

    return log_prob, twice(numbers(3), numbers(3), numbers(4, 3))


@case("pyro.AffineAutoregressive")
def _():
    from pyro.distributions.transforms import AffineAutoregressive
    from pyro.nn import AutoRegressiveNN

    def transformed(t, x):
        y = t(x)
        return y, t.log_abs_det_jacobian(x, y)

    return Wrapped(transformed, AffineAutoregressive(AutoRegressiveNN(4, [8]))), twice(numbers(2, 4))


@case("pyro.Trace_ELBO")
def _():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import Trace_ELBO

    pyro.clear_param_store()

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(3, 2)

        def model(self, x):
            with pyro.plate("data", x.shape[0]):
                z = pyro.sample("z", dist.Normal(torch.zeros(x.shape[0]), 1.0))
                mean = z.unsqueeze(-1).expand(x.shape[0], 3)
                pyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=x)

        def guide(self, x):
            h = self.encoder(x)
            with pyro.plate("data", x.shape[0]):
                pyro.sample("z", dist.Normal(h[:, 0], h[:, 1].exp()))

        def forward(self, x):
            return Trace_ELBO().differentiable_loss(self.model, self.guide, x)

    return Loss(), twice(numbers(4, 3))


# -- Gaussian processes
@case("linear_operator.solve")
def _():
    from linear_operator.operators import DenseLinearOperator, DiagLinearOperator

    def solved(d, a, v):
        positive = DenseLinearOperator(a @ a.mT).add_diagonal(torch.ones(4))
        return DiagLinearOperator(d.exp()).solve(v), positive.inv_quad_logdet(v, logdet=True)

    return solved, twice(numbers(4), numbers(4, 4), numbers(4, 1))


@case("linear_operator.structured")
def _():
    from linear_operator.operators import (
        DenseLinearOperator,
        KroneckerProductLinearOperator,
        ToeplitzLinearOperator,
    )

    def products(a, b, column, v):
        kronecker = KroneckerProductLinearOperator(DenseLinearOperator(a), DenseLinearOperator(b))
        return kronecker @ v, ToeplitzLinearOperator(column).matmul(v)

    return products, twice(numbers(2, 2), numbers(3, 3), numbers(6), numbers(6, 1))


@case("gpytorch.ExactMarginalLogLikelihood")
def _():
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    x = torch.rand(5, 1)
    process = Process(x, torch.rand(5), likelihood).train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    return Wrapped(lambda loss, y: -loss(loss.model(x), y), loss), twice(lambda: torch.rand(5))


@case("botorch.LogExpectedImprovement")
def _():
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x, y = torch.rand(5, 2, dtype=torch.float64), torch.rand(5, 1, dtype=torch.float64)
    return LogExpectedImprovement(SingleTaskGP(x, y).eval(), best_f=0.5), twice(
        lambda: torch.rand(3, 1, 2, dtype=torch.float64, requires_grad=True)
    )


@case("botorch.safe_math")
def _():
    from botorch.utils.safe_math import fatmax, logmeanexp, smooth_amax

    def maxima(x):
        return logmeanexp(x, dim=-1), smooth_amax(x, dim=-1), fatmax(x, dim=-1)

    return maxima, twice(numbers(3, 4))


# -- flows
def zuko_flow(name, **kwargs):
    @case(f"zuko.{name}")
    def _():
        import zuko

        flow = getattr(zuko.flows, name)(3, 2, hidden_features=[8], **kwargs)
        return Wrapped(lambda flow, x, c: flow(c).log_prob(x), flow), twice(numbers(4, 3), numbers(4, 2))


zuko_flow("MAF", transforms=2)
zuko_flow("NSF", transforms=1)
zuko_flow("GF", transforms=1)


@case("FrEIA.GraphINN")
def _():
    import FrEIA.framework as framework
    import FrEIA.modules as modules

    nodes = [framework.InputNode(4)]
    coupling = {"subnet_constructor": nn.Linear, "clamp": 1.2}
    nodes.append(framework.Node(nodes[-1], modules.GLOWCouplingBlock, coupling))
    nodes.append(framework.Node(nodes[-1], modules.PermuteRandom, {"seed": 1}))
    nodes.append(framework.OutputNode(nodes[-1]))
    return Wrapped(lambda m, x: m(x, rev=True), framework.GraphINN(nodes)), twice(numbers(3, 4))


@case("sbi.build_maf")
def _():
    from sbi.neural_nets.net_builders import build_maf

    density = build_maf(torch.rand(20, 2), torch.rand(20, 3), hidden_features=8, num_transforms=1)
    return Wrapped(lambda m, x, c: m.log_prob(x[None], c), density), twice(numbers(4, 2), numbers(4, 3))


# -- differential equations
@case("torchdiffeq.dopri5")
def _():
    from torchdiffeq import odeint

    def solved(linear, y):
        return odeint(lambda t, y: linear(y), y, torch.linspace(0, 1, 3), rtol=1e-3, atol=1e-3)

    return Wrapped(solved, nn.Linear(2, 2)), twice(numbers(3, 2))


@case("torchcde.cdeint")
def _():
    import torchcde

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 6)

        def forward(self, t, z):
            return self.linear(z).view(*z.shape[:-1], 3, 2)

    def solved(field, first, x):
        path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))
        start = first(path.evaluate(path.interval[0]))
        return torchcde.cdeint(
            X=path,
            func=field,
            z0=start,
            t=path.interval,
            adjoint=False,
            method="rk4",
            options={"step_size": 1.0},
        )

    return Wrapped(solved, Field(), nn.Linear(2, 3)), twice(numbers(2, 4, 2))


@case("torchode.AutoDiffAdjoint")
def _():
    import torchode

    def solved(linear, y):
        term = torchode.ODETerm(lambda t, y: linear(y))
        control = torchode.IntegralController(atol=1e-3, rtol=1e-3, term=term)
        times = torch.linspace(0, 1, 3).repeat(2, 1)
        problem = torchode.InitialValueProblem(y0=y, t_eval=times)
        return torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), control).solve(problem).ys

    return Wrapped(solved, nn.Linear(2, 2)), twice(numbers(2, 2))


@case("torchsde.sdeint")
def _():
    import torchsde

    class Equation(nn.Module):
        noise_type = "diagonal"
        sde_type = "ito"

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def f(self, t, y):
            return self.linear(y)

        def g(self, t, y):
            return 0.1 * y

    def solved(equation, y):
        motion = torchsde.BrownianInterval(0.0, 1.0, size=y.shape, entropy=3)
        return torchsde.sdeint(equation, y, torch.linspace(0, 1, 3), bm=motion, method="euler", dt=0.5)

    return Wrapped(solved, Equation()), twice(numbers(3, 2))


# -- manifolds
@case("geoopt.PoincareBall")
def _():
    import geoopt

    def mapped(ball, linear, x):
        y = ball.expmap0(linear(x) * 0.1)
        return ball.dist(y, ball.projx(x * 0.1)), ball.logmap0(y)

    return Wrapped(mapped, geoopt.PoincareBall(c=1.0), nn.Linear(3, 3)), twice(numbers(4, 3))


@case("geoopt.ManifoldParameter")
def _():
    import geoopt

    class Rotated(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = geoopt.ManifoldParameter(torch.eye(3), manifold=geoopt.Stiefel())

        def forward(self, x):
            return x @ self.matrix

    return Rotated(), twice(numbers(4, 3))


@case("pypose.SE3")
def _():
    import pypose

    def pose(x):
        return (pypose.se3(x).Exp().Inv() @ pypose.se3(x * 0.5).Exp()).matrix()

    return pose, twice(numbers(3, 6))


# -- calculus
@case("torch_dct.dct")
def _():
    import torch_dct

    def there_and_back(x):
        return torch_dct.dct(x, norm="ortho"), torch_dct.idct_2d(torch_dct.dct_2d(x))

    return there_and_back, twice(numbers(4, 4))


@case("torchmin.bfgs", grads=False)
def _():
    from torchmin import minimize

    def lowest(x):
        return minimize(lambda z: ((z - 1) ** 2).sum(), x, method="bfgs", max_iter=2).x

    return lowest, twice(lambda: torch.rand(3))


@case("xitorch.solve")
def _():
    import xitorch
    from xitorch.interpolate import Interp1D
    from xitorch.linalg import solve

    def solved(a, b, y):
        operator = xitorch.LinearOperator.m(a @ a.mT + torch.eye(3))
        points = Interp1D(torch.linspace(0, 1, 5), y, method="linear")
        return solve(operator, b), points(torch.tensor([0.2, 0.7]))

    return solved, twice(numbers(3, 3), numbers(3, 1), numbers(5))


@case("kan.KAN")
def _():
    from kan import KAN

    network = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False, symbolic_enabled=False)
    return network, twice(numbers(4, 2))


@case("torchani.AEVComputer")
def _():
    import torchani

    species = torch.tensor([[0, 1, 0]])
    return Wrapped(lambda m, x: m(species, x), torchani.AEVComputer.like_2x()), twice(
        lambda: torch.rand(1, 3, 3, requires_grad=True)
    )

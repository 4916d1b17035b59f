"""Steps that make parameters which leave the program, that decide on data, or exchange parameters' data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from frontend.custom_gradients.backwards_with_effects import inputs

Jit = Callable[[Any], Any]
STEPS: dict[str, Callable[[Jit], Any]] = {}


def step(run: Callable[[Jit], Any]) -> Callable[[Jit], Any]:
    STEPS[run.__name__] = run
    return run


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def grads(m: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in m.parameters()]


def state(m: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in m.parameters()]


class Sharpness:
    def __init__(self, ps, rho=0.05):
        self.ps = list(ps)
        self.base = torch.optim.SGD(self.ps, 0.1, momentum=0.9)
        self.rho = rho
        self.old = {}

    @torch.no_grad()
    def first_step(self):
        n = torch.norm(torch.stack([p.grad.norm() for p in self.ps]))
        s = self.rho / (n + 1e-12)
        for p in self.ps:
            self.old[p] = p.data.clone()
            p.add_(p.grad * s)
        self.base.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.ps:
            p.data = self.old[p]
        self.base.step()
        self.base.zero_grad()


class SharpnessAware(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base_optimizer = base(self.param_groups, **kw)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        n = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (n + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def _grad_norm(self):
        return torch.norm(
            torch.stack(
                [p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]
            ),
            p=2,
        )


@step
def parameter_returned(jit: Jit) -> Any:
    def prog(x):
        return nn.Parameter(x.sum(0) * 2), x.sin()

    f = jit(prog)
    out = []
    for x in inputs():
        p, y = f(x)
        out.append((type(p), p.is_leaf, p.requires_grad, p.detach().clone()))
        (p * y).sum().backward()
        out.append(p.grad)
    return out


@step
def parameter_random_returned(jit: Jit) -> Any:
    def prog(n):
        return nn.Parameter(torch.randn(n))

    f = jit(prog)
    out = []
    torch.manual_seed(1)
    for n in (4, 4, 6, 3):
        p = f(n)
        out.append((type(p), p.is_leaf, p.detach().clone()))
        (p * 2).sum().backward()
        out.append(p.grad)
    return out


@step
def parameter_stored_on_self_backward(jit: Jit) -> Any:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = None

        def forward(self, x):
            if self.w is None:
                self.w = nn.Parameter(torch.ones(x.shape[1]))
            loss = (x * self.w).sum()
            loss.backward()
            return loss.detach()

    m = M()
    f = jit(m)
    out = []
    for x in inputs():
        out += [f(x), type(m.w), m.w.is_leaf, m.w.grad.clone(), list(dict(m.named_parameters()))]
    return out


@step
def module_made_trained_and_returned(jit: Jit) -> Any:
    def prog(x, y):
        new = nn.Linear(3, 2)
        new.weight.data.copy_(torch.full((2, 3), 0.5))
        new.bias.data.zero_()
        opt = torch.optim.SGD(new.parameters(), 0.1)
        for _ in range(2):
            opt.zero_grad()
            loss = (new(x) - y).square().mean()
            loss.backward()
            opt.step()
        return new

    f = jit(prog)
    out = []
    for x in inputs():
        new = f(x, torch.ones(len(x), 2))
        out += [new.weight.detach().clone(), grads(new), new.weight.is_leaf]
        new(x).sum().backward()
        out.append(grads(new))
    return out


@step
def module_deepcopied_trained_returned(jit: Jit) -> Any:
    m = net()

    def prog(x):
        c = copy.deepcopy(m)
        opt = torch.optim.SGD(c.parameters(), 0.1)
        loss = c(x).square().mean()
        loss.backward()
        opt.step()
        return c, loss.detach()

    f = jit(prog)
    out = []
    for x in inputs():
        c, new = f(x)
        out += [
            new,
            grads(c),
            [p.detach().clone() for p in c.parameters()],
            [p.is_leaf for p in c.parameters()],
        ]
        c(x).sum().backward()
        out.append(grads(c))
    return out


@step
def batchnorm_then_decision_then_backward(jit: Jit) -> Any:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def prog(x):
        h = m(x)
        loss = h.square().mean()
        if loss > 0.5:
            loss = loss * 2
        loss.backward()
        return loss.detach()

    f = jit(prog)
    out = []
    for x in inputs():
        out += [f(x), grads(m), m[1].running_mean.clone(), int(m[1].num_batches_tracked)]
    return out


@step
def batchnorm_decision_between(jit: Jit) -> Any:
    torch.manual_seed(0)
    a, b, c = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
    opt = torch.optim.SGD([*a.parameters(), *b.parameters(), *c.parameters()], 0.1, momentum=0.9)

    def prog(x):
        opt.zero_grad()
        h = b(a(x))
        if h[0, 0] > 0:
            h = h.relu()
        loss = c(h).square().mean()
        loss.backward()
        if torch.isfinite(loss):
            opt.step()
        return loss.detach()

    f = jit(prog)
    out = []
    for x in inputs():
        out += [f(x), grads(b), b.running_var.clone(), a.weight.detach().clone()]
    return out


@step
def dropout_batchnorm_decision(jit: Jit) -> Any:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    def prog(x):
        loss = m(x).square().mean()
        if loss > 0.5:
            loss = loss * 2
        loss.backward()
        return loss.detach()

    f = jit(prog)
    out = []
    torch.manual_seed(5)
    for x in inputs():
        out += [f(x), grads(m), m[1].running_mean.clone()]
    return out


@step
def sam_step(jit: Jit) -> Any:
    m = net()
    sam = Sharpness(m.parameters())

    def prog(x):
        loss = m(x).square().mean()
        loss.backward()
        sam.first_step()
        m(x).square().mean().backward()
        sam.second_step()
        return loss.detach()

    f = jit(prog)
    out = []
    for x in inputs():
        out += [f(x), state(m)]
    return out


@step
def real_sam(jit: Jit) -> Any:
    m = net()
    o = SharpnessAware(m.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)

    def prog(x):
        loss = m(x).square().mean()
        loss.backward()
        o.first_step(zero_grad=True)
        m(x).square().mean().backward()
        o.second_step(zero_grad=True)
        return loss.detach()

    f = jit(prog)
    out = []
    for x in inputs():
        out += [f(x), state(m)]
    return out

"""Programs in which an operator raises for its data, of kinds that the random ones of `handlers` do not have:
in-place writes, modules, closures, generators of random numbers, nested compiled functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

GOOD, BAD = torch.eye(2), -torch.eye(2)
PROGRAMS: list[Callable[..., Any]] = []
COUNT = 0


def program(fn):
    """Enters a program into the list: it takes x, whose factor may not exist, and a holder."""
    PROGRAMS.append(fn)
    return fn


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.linalg.cholesky(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 2


class FnB(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.linalg.cholesky(ctx.saved_tensors[0])


@program
def af(x, log):
    try:
        return Fn.apply(x)
    except RuntimeError as e:
        log.append(str(e))
        return x * 3


@program
def afdead(x, log):
    try:
        Fn.apply(x)
    except RuntimeError as e:
        log.append(str(e))
        return x * 3
    return x * 2


@program
def inplace(x, log):
    y = x * 1
    try:
        y.add_(1)
        torch.linalg.cholesky(x, out=torch.empty(2, 2))
        y.mul_(2)
    except RuntimeError:
        y.sub_(5)
    return y


@program
def inplace_input(x, log):
    buf = log.buf
    buf.add_(1)
    try:
        z = torch.linalg.cholesky(x)
        buf.add_(10)
    finally:
        buf.mul_(2)
    return z


@program
def view(x, log):
    v = log.buf[0]
    try:
        v.add_(torch.linalg.cholesky(x)[0, 0])
    except RuntimeError:
        v.zero_()
    return x


inner = thunder.jit(lambda x: torch.linalg.cholesky(x) * 2)


@program
def nested(x, log):
    try:
        return inner(x)
    except RuntimeError as e:
        log.append(type(e).__name__)
        return x * 9


@program
def item(x, log):
    log.append(1)
    try:
        y = torch.linalg.cholesky(x)
        return y.sum().item()
    except RuntimeError:
        return 3.0


@program
def delattr_(x, log):
    log.tmp = x
    try:
        return torch.linalg.cholesky(x)
    finally:
        del log.tmp


@program
def glob(x, log):
    global COUNT
    COUNT += 1
    return torch.linalg.cholesky(x)


COUNT = 0


@program
def closure(x, log):
    n = 0

    def inc():
        nonlocal n
        n += 1

    try:
        inc()
        y = torch.linalg.cholesky(x)
        inc()
        return y * n
    except RuntimeError:
        return x * n


@program
def exit_stack(x, log):
    with contextlib.ExitStack() as s:
        s.callback(log.append, "cb")
        s.enter_context(torch.no_grad())
        return torch.linalg.cholesky(x)


@program
def rec(x, log):
    def r(n):
        try:
            if n == 0:
                return torch.linalg.cholesky(x)
            return r(n - 1)
        except RuntimeError:
            log.append(n)
            raise

    return r(3)


@program
def retry(x, log):
    for k in range(4):
        try:
            return torch.linalg.cholesky(x + k * torch.eye(2))
        except torch.linalg.LinAlgError:
            log.append(k)
    raise ValueError("no")


@program
def exc_group(x, log):
    try:
        try:
            torch.linalg.cholesky(x)
        except RuntimeError as e:
            raise ExceptionGroup("g", [e]) from e
    except* RuntimeError as eg:
        log.append(len(eg.exceptions))
    return x


@program
def loop_else(x, log):
    for i in range(3):
        try:
            torch.linalg.inv(x - torch.eye(2))
        except RuntimeError:
            log.append("c")
            continue
        finally:
            log.append(i)
        break
    else:
        log.append("else")
    return x


@program
def with_seed(x, log):
    torch.manual_seed(7)
    y = torch.rand(2)
    try:
        z = torch.linalg.cholesky(x)
    except RuntimeError:
        z = torch.rand(2, 2)
    return z + y


@program
def dropout(x, log):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        try:
            return torch.nn.functional.dropout(torch.linalg.cholesky(x))
        finally:
            log.append(1)


@program
def getattr_default(x, log):
    try:
        return log.missing * x
    except AttributeError:
        pass
    try:
        return log.d["nope"]
    except (KeyError, AttributeError):
        pass
    return torch.linalg.cholesky(x)


@program
def backward_raises(x, log):
    return FnB.apply(x).sum()


@program
def bn(x, log):
    y = log.bn(x)
    try:
        return torch.linalg.cholesky(x) + y
    except RuntimeError:
        return y


@program
def assign_then(x, log):
    log.d = {"a": x}
    log.l = [1, 2]
    log.l.append(torch.linalg.cholesky(x))
    return log.l[-1]


@program
def idx_assign(x, log):
    i = log.idx
    y = x.clone()
    try:
        y[i] = 5.0
    except IndexError as e:
        log.append(str(e))
    return y


@program
def setitem_input(x, log):
    try:
        log.buf[log.idx] = 5.0
    except IndexError as e:
        log.append(str(e))
        log.buf.add_(1)
    return x


@program
def index_put(x, log):
    log.buf.index_put_((log.idx,), torch.ones(()))
    return x


@program
def embedding(x, log):
    return torch.nn.functional.embedding(log.idx, x)


@program
def isinst(x, log):
    try:
        torch.linalg.cholesky(x)
    except Exception as e:
        log.append((isinstance(e, torch.linalg.LinAlgError), type(e) is torch.linalg.LinAlgError, e.args))
    return x


class Holder:
    """What a program writes to."""

    def __init__(self):
        self.items, self.buf = [], torch.zeros(2)
        self.bn = torch.nn.BatchNorm1d(2)
        self.idx = torch.tensor([0, 1])

    def append(self, value):
        self.items.append(value)


def observed(fn, bad, grad, holder):
    """What a call returns or raises, the gradient, and what it leaves behind."""
    global COUNT
    COUNT = 0
    holder.idx = torch.tensor([0, 7 if bad else 1])
    x = (BAD if bad else GOOD).clone().requires_grad_(grad)
    torch.manual_seed(0)
    try:
        result = fn(x, holder)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
        end = result.tolist() if isinstance(result, torch.Tensor) else result
    except thunder.ThunderError:
        raise
    except Exception as error:
        end = type(error), str(error)
    left = {name: shown(value) for name, value in vars(holder).items()}
    mode = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    statistics = holder.bn.running_mean.tolist(), holder.bn.num_batches_tracked.item()
    return end, shown(x.grad), mode, torch.rand(1).item(), COUNT, left, statistics


def shown(value):
    """A value as text, of tensors the numbers."""
    if isinstance(value, torch.Tensor):
        return str(value.tolist())
    if isinstance(value, list):
        return str([shown(v) for v in value])
    return None if isinstance(value, torch.nn.Module) else type(value).__name__


@pytest.mark.parametrize("bad_calls", [(1, 3), (0, 2)], ids=["second", "first"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_program_that_raises_on_data_does_what_eager_does(fn, grad, bad_calls):
    torch.manual_seed(1)
    compiled, theirs, ours = thunder.jit(fn), Holder(), Holder()
    for number in range(4):
        bad = number in bad_calls
        assert observed(compiled, bad, grad, ours) == observed(fn, bad, grad, theirs)

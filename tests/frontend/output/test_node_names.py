"""Texts of tensors that require gradients: they name the node that eager's text names."""

from __future__ import annotations

import logging
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder

LAYER = nn.Linear(3, 3)


def program(x: torch.Tensor) -> str:
    print(x, x * 2, [x.mean(), {"a": x.sum(0)}], x.contiguous(), x.detach() * 2, sep="\n")
    print(LAYER(x), F.gelu(x), x.view(3, 1), x[:2], F.mse_loss(x, x * 2), x / 2, x.sort()[0])
    print((x * 2).add_(1))
    logging.getLogger("nodes").warning("%s of %s", x.norm(), [x.softmax(0)])
    with torch.no_grad():
        print(x * 2)
    return f"{x.std()} {x + 1} {(x.exp(),)}"


def test_printed_logged_and_returned_texts_are_eagers(capsys, caplog):
    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        x = torch.tensor([1.0, 2.0, value], requires_grad=True)
        expected, printed, logged = program(x), capsys.readouterr().out, caplog.messages[:]
        caplog.clear()
        assert compiled(x) == expected
        assert capsys.readouterr().out == printed
        assert caplog.messages == logged
        assert "grad_fn=<MeanBackward0>" in printed
        caplog.clear()
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("requires_grad", [False, True])
def test_gradients_are_those_of_a_program_that_prints(requires_grad, capsys):
    def printing(x):
        y = x.sin()
        print(y)
        return (y * 2).sum()

    x = torch.ones(3, requires_grad=requires_grad)
    loss = thunder.jit(printing)(x)
    if requires_grad:
        loss.backward()
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert ("SinBackward0" in capsys.readouterr().out) == requires_grad


def written(x):
    y, z = x * 2, torch.zeros(2)
    view, same = y[1:], y.contiguous()
    view.add_(1)
    print(y, view, y.view(-1))
    same.add_(1)
    with torch.no_grad():
        print(y)
        y.mul_(2)
    print(y, same, view)
    z[0] = x[0]
    print(z, x)
    print(z.relu_())
    x[:1].mul_(2)
    print(x)


def test_the_node_after_a_write_is_eagers(capsys):
    texts = []
    for run in (written, thunder.jit(written)):
        run(torch.ones(2, requires_grad=True).clone())
        texts.append(capsys.readouterr().out.replace("ThunderFunctionBackward", "CloneBackward0"))
    assert texts[0] == texts[1]
    assert "CopySlices" in texts[0]
    assert "AsStridedBackward0" in texts[0]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_is_written_later_is_not_shown(requires_grad, capsys, caplog):
    def doubled(x, weight):
        print(x, x * 1, weight)
        print([x], file=sys.stderr)
        logging.getLogger("nodes").warning("%s", x)
        x[:1].mul_(2)
        return x

    shown = []
    for run in (doubled, thunder.jit(doubled)):
        run(torch.ones(2, requires_grad=requires_grad).clone(), nn.Parameter(torch.ones(1)))
        shown.append((*capsys.readouterr(), caplog.text))
        caplog.clear()
    assert shown[0] == shown[1]


def test_a_leaf_that_is_written_is_shown_as_one(capsys):
    def stepped(weight, x):
        leaf = x.detach().requires_grad_()
        with torch.no_grad():
            weight.mul_(2)
            print(weight, [leaf], weight.data)
        print(f"{weight * x} {leaf}")

    shown = []
    for run in (stepped, thunder.jit(stepped)):
        run(nn.Parameter(torch.ones(2)), torch.ones(2))
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "Parameter containing" in shown[0]

"""Texts of tensors that require gradients: they name the node that eager's text names."""

from __future__ import annotations

import logging

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

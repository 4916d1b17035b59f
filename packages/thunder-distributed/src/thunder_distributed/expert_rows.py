"""The program of an expert, for the rows of all experts: how it is marked, and what it becomes.

    t1 = expert_rows(t0, offsets, weights, 4)       t0 is sorted by expert
    t2 = linear(t1, t_0_weight, None)        →      t2 = expert_product(t0, '0', stack(own weights), offsets)
    t3 = silu(t2)                                   t3 = silu(t2)
    t4 = expert_results(t3, t1)

Between the marks is the program of the first expert. Each linear layer multiplies with the weights of all
experts; what else computes with the rows is elementwise, so that no row depends on another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.errors import UnsupportedProgram
from thunder.core.proxies import Variable
from thunder.core.symbol import BoundSymbol, Symbol

from .collectives import ex
from .expert_products import expert_product
from .sharding.products import is_pointwise

__all__ = ["RowsOfExperts", "expert_of", "expert_results", "expert_rows"]

LINEAR: Final = "torch.nn.functional.linear"
CAST: Final = "prims.convert_element_type"

#: rows that are sorted by expert; their ends, the parameters of all experts, expert by expert, and how many
expert_rows: Symbol = ex.register_operator(
    "expert_rows", meta=lambda rows, offsets, parameters, count: TensorProxy(like=rows)
)
#: what the first expert computes from such rows
expert_results: Symbol = ex.register_operator(
    "expert_results", meta=lambda results, rows: TensorProxy(like=results)
)
#: a parameter of an expert of some process, in the shape that it has there
expert_of: Symbol = ex.register_operator(
    "expert_of", meta=lambda part, group, is_here, shape: TensorProxy(like=part, shape=shape)
)


@dataclass
class _Mixture:
    """Marked rows: those that are sent, and the parameters of this process's experts."""

    group: str
    offsets: Any
    #: name of a parameter of the first expert → those of the experts of this process
    own: dict[str, tuple[Any, ...]]


@dataclass
class RowsOfExperts:
    """The values of a program that are rows of experts, or parameters of experts that are modules."""

    #: name of a parameter → what this process has of it, the group, and whether it is here
    parameters: dict[str, tuple[Any, str, bool]] = field(default_factory=dict)
    #: name of a value → the mixture whose rows it has
    rows: dict[str, _Mixture] = field(default_factory=dict)
    #: name of a cast parameter → the parameter's name, and what casts it
    casts: dict[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    names: dict[Variable, Any] = field(default_factory=dict)

    def reads(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement concerns experts that are modules."""
        known = (self.parameters, self.rows, self.casts)
        return bsym.sym.id == expert_of.id or any(
            p.name in names for p in bsym.flat_proxy_args for names in known
        )

    def record(self, bsym: BoundSymbol) -> BoundSymbol | None:
        """Record what a statement computes here; return the statement itself if it stays as it is.

        Raises UnsupportedProgram for one that is neither a linear layer nor elementwise.
        """
        operator = bsym.sym.id
        if operator == expert_of.id:
            part, group, is_here, _ = bsym.args
            self.parameters[bsym.output.name] = part, group, is_here
        elif operator == expert_rows.id:
            self._begin(bsym.output, *bsym.args)
        elif operator == expert_results.id:
            self.names[Variable(bsym.output)] = self.names.get(Variable(bsym.args[0]), bsym.args[0])
        elif operator == CAST and bsym.args[0].name in self.parameters:
            dtype = bsym.args[1]
            self.casts[bsym.output.name] = bsym.args[0].name, lambda part: bsym.sym(part, dtype)
        elif operator == LINEAR and self._is_layer(*bsym.args):
            self._multiply(bsym.output, *bsym.args)
        elif self._is_by_rows(bsym):
            (mixture,) = {id(m): m for p in bsym.flat_proxy_args if (m := self.rows.get(p.name))}.values()
            self.rows[bsym.output.name] = mixture
            return bsym
        else:
            name = str(operator).partition("#")[0]
            raise UnsupportedProgram(
                f"an expert computes with {name}, which expert_parallel does not divide",
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Experts that are modules consist of linear layers and elementwise operators, and are "
                "called by thunder.distributed.mixture(experts, x, chosen, weights).",
            )
        return None

    def _begin(self, marked: Any, rows: Any, offsets: Any, parameters: Sequence[Any], count: int) -> None:
        unknown = [p.name for p in parameters if p.name not in self.parameters]
        if unknown or not parameters:
            raise UnsupportedProgram(
                "a mixture has experts that expert_parallel does not divide",
                found={"parameters": ", ".join(unknown) or "none"},
                hint='Name all parameters of its experts: experts=["*.experts.*"].',
            )
        each = len(parameters) // count
        table = [
            [self.parameters[p.name] for p in parameters[e * each : (e + 1) * each]] for e in range(count)
        ]
        here = [row for row in table if row[0][2]]
        own = {p.name: tuple(row[i][0] for row in here) for i, p in enumerate(parameters[:each])}
        self.rows[marked.name] = _Mixture(table[0][0][1], offsets, own)
        self.names[Variable(marked)] = rows

    def _is_layer(self, rows: Any, weight: Any, bias: Any = None) -> bool:
        mixture = self.rows.get(rows.name)
        tensors = [t for t in (weight, bias) if t is not None]
        return (
            mixture is not None
            and rows.ndim == 2
            and all(self.casts.get(t.name, (t.name,))[0] in mixture.own for t in tensors)
        )

    def _multiply(self, output: Any, rows: Any, weight: Any, bias: Any = None) -> None:
        """Record the product with the weights of all experts; a bias is the weight of a column of ones."""
        mixture = self.rows[rows.name]
        a = self.names.get(Variable(rows), rows)
        stacked = ltorch.transpose(self._stacked(mixture, weight), -2, -1)
        if bias is not None:
            stacked = ltorch.cat((stacked, ltorch.unsqueeze(self._stacked(mixture, bias), 1)), 1)
            a = ltorch.cat((a, ltorch.ones((a.shape[0], 1), dtype=a.dtype, device=a.device)), 1)
        product = expert_product(a, mixture.group, stacked, mixture.offsets)
        self.names[Variable(product)] = product.replace(name=output.name)
        self.rows[output.name] = mixture

    def _stacked(self, mixture: _Mixture, parameter: Any) -> Any:
        """Return the stack of a parameter of the experts of this process."""
        name, cast = self.casts.get(parameter.name, (parameter.name, lambda part: part))
        return cast(ltorch.stack(mixture.own[name]))

    def _is_by_rows(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement computes elements of rows from those at the same place."""
        tensors = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
        mixtures = {id(self.rows[p.name]) for p in tensors if p.name in self.rows}
        others = [p for p in tensors if p.name not in self.rows]
        return (
            len(mixtures) == 1
            and isinstance(bsym.output, TensorProxy)
            and is_pointwise(bsym)
            and all(p.shape == bsym.output.shape for p in tensors if p.name in self.rows)
            and all(p.ndim < 2 and not self.reads_name(p.name) for p in others)
        )

    def reads_name(self, name: str) -> bool:
        """Return whether a value is a parameter of an expert."""
        return name in self.parameters or name in self.casts

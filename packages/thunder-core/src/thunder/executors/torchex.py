"""The executor `torch`: runs every operator row eagerly, by the function that the row names as its reference.

Importing this module registers nothing; the plugin `torch` names `ex` as its executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from thunder.base.autocast_state import no_autocast
from thunder.executor_base.executor import ImplInfo, Rank
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator, all_rows, row_of, symbol_of

__all__ = ["TorchExecutor", "ex", "no_autocast"]


def _at_path(path: str) -> Any:
    """The object at a dotted path into torch, or None."""
    root, *parts = path.split(".")
    found: Any = torch if root == "torch" else None
    for part in parts:
        found = getattr(found, part, None)
    return found


class TorchExecutor(OperatorExecutor):
    """Claims every symbol whose row has a reference implementation, or whose id is a path to a function of
    torch.

    It has no table of its own: the rows are the table. What `register_implementation` and hooks add lies on
    top.
    """

    def __init__(self) -> None:
        super().__init__("torch", version=torch.__version__, rank=Rank.EAGER, aliases=("pytorch",))
        self._rows = _Rows(self)

    @property
    def implmap(self) -> Mapping[str, ImplInfo]:
        """Operator id → record: one for each row that can run eagerly."""
        self._rows.added = super().implmap
        return self._rows


class _Rows(Mapping[str, ImplInfo]):
    """The operator rows as the table of an executor; a record is made when it is first asked for."""

    def __init__(self, executor: TorchExecutor) -> None:
        self._executor = executor
        self._made: dict[str, tuple[Operator, ImplInfo]] = {}
        self.added: Mapping[str, ImplInfo] = {}

    def get(self, operator_id: str, default: Any = None) -> Any:
        """The record of an operator, or `default`."""
        added = self.added.get(operator_id)
        row = row_of(operator_id)
        if row is None:
            return default if added is None else added
        known = self._made.get(operator_id)
        if known is None or known[0] is not row:  # a row may have been replaced
            known = self._made[operator_id] = (row, ImplInfo(eager_symbol(row, self._executor)))
        info = known[1]
        if added is not None:
            return info.overlaid(added)
        return info if info.symbol is not None else default

    def __getitem__(self, operator_id: str) -> ImplInfo:
        info = self.get(operator_id)
        if info is None:
            raise KeyError(operator_id)
        return info  # type: ignore[no-any-return]

    def __contains__(self, operator_id: object) -> bool:
        return isinstance(operator_id, str) and self.get(operator_id) is not None

    def __iter__(self) -> Iterator[str]:
        ids = dict.fromkeys(row.id for row in all_rows())
        ids.update(dict.fromkeys(self.added))
        return (operator_id for operator_id in ids if operator_id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def eager_symbol(row: Operator, executor: TorchExecutor) -> Symbol | None:
    """The symbol that runs a row's reference implementation, or None if there is none.

    It prints as the public path to that function, where there is one, else as a name of its own.
    """
    path = row.eager_path
    if path is None:
        found = _at_path(row.id)
        if callable(found) and (row.eager is None or found is row.eager):
            path = row.id
    if path is None and row.eager is None:
        return None
    name = (
        row.name
        if path is not None
        else f"torch_{row.name}_prim_impl"
        if row.meta
        else f"torch_{row.name}_impl"
    )
    return Symbol(
        name=name,
        id=row.id,
        is_prim=row.meta is not None,
        tags=symbol_of(row.id).tags,
        executor=executor,
        call_path=path,
        call_target=row.eager if path is not None else None,
        python_impl=row.eager if path is None else None,
    )


ex = TorchExecutor()

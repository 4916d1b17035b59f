"""The executor `torch`: runs every operator row eagerly, by its reference implementation.

Importing this module registers nothing; the plugin `torch` names `ex` as its executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.autocast_state import no_autocast
from thunder.executor_base.executor import ImplInfo, Rank
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator, all_rows, row_of, symbol_from_row, symbol_of

__all__ = ["TorchExecutor", "ex", "no_autocast"]


class TorchExecutor(OperatorExecutor):
    """Claims symbols with a reference implementation, and those named after a torch function.

    Its table is computed from the operator rows, and merged with the entries that `register_implementation`
    and hooks add.
    """

    def __init__(self) -> None:
        super().__init__("torch", version=torch.__version__, rank=Rank.EAGER, aliases=("pytorch",))
        self._rows = _Rows(self)

    @property
    def implmap(self) -> Mapping[str, ImplInfo]:
        """Operator id → implementation, for each row that can run eagerly."""
        if self._merged is None:
            self._rows.added = super().implmap
        return self._rows


class _Rows(Mapping[str, ImplInfo]):
    """The operator rows as the table of an executor; entries are computed when needed."""

    def __init__(self, executor: TorchExecutor) -> None:
        self._executor = executor
        self._computed: dict[str, tuple[Operator, ImplInfo]] = {}
        self.added: Mapping[str, ImplInfo] = {}

    def get(self, operator_id: str, default: Any = None) -> Any:
        """Return the implementation of an operator, or `default`."""
        added = self.added.get(operator_id) if self.added else None
        row = row_of(operator_id)
        if row is None:
            return default if added is None else added
        entry = self._computed.get(operator_id)
        if entry is None or entry[0] is not row:  # a row may have been replaced
            entry = self._computed[operator_id] = (row, ImplInfo(eager_symbol(row, self._executor)))
        info = entry[1]
        if added is not None:
            return info.merged_with(added)
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
    """Return the symbol that runs a row's reference implementation, or None if there is none.

    It prints as the public path to that function if there is one, else under a private name.
    """
    path = row.eager_path
    if path is None:
        function = find_torch(row.id)
        if callable(function) and (row.eager is None or function is row.eager):
            path = row.id
    if path is None and row.eager is None:
        return None
    private_name = f"torch_{row.name}_prim_impl" if row.meta else f"torch_{row.name}_impl"
    return symbol_from_row(
        row,
        name=row.name if path is not None else private_name,
        meta=None,
        tags=symbol_of(row.id).tags,
        module=None,
        executor=executor,
        call_path=path,
        call_target=row.eager if path is not None else None,
        python_printer=None,
        python_impl=row.eager if path is None else None,
    )


ex = TorchExecutor()

"""The table of rules: how an operator computes part of its result from parts of operands.

What starts in parts is the plan's: parameters for tensor parallelism, inputs for context parallelism. So is
what an operator without a rule does: it computes with gathered values, or the program is refused.
"""

from __future__ import annotations

from typing import Any, Final

from thunder.core.symbol import BoundSymbol

from ..sequences.parts import collect_parts, gather_parts, sum_parts, take_part, use_in_parts
from .layers import LAYERS
from .products import PRODUCTS, elementwise, is_pointwise
from .values import Rule
from .views import VIEWS, along

__all__ = ["RULES", "rule_of"]

#: what context parallelism has put into a program: its processes are those of another group
_OF_SEQUENCES: Final[dict[Any, Rule]] = {
    **dict.fromkeys((use_in_parts.id, sum_parts.id), along(lambda bsym: (), even=False)),
    **dict.fromkeys(
        (take_part.id, gather_parts.id, collect_parts.id), along(lambda bsym: (bsym.args[3],), even=False)
    ),
}
#: id of an operator → its rule
RULES: Final[dict[Any, Rule]] = {**PRODUCTS, **VIEWS, **LAYERS, **_OF_SEQUENCES}


def rule_of(bsym: BoundSymbol) -> Rule | None:
    """Return the rule of an operator; that of a composite of elementwise operators is theirs."""
    rule = RULES.get(bsym.sym.id)
    return elementwise if rule is None and is_pointwise(bsym) else rule

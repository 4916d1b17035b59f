"""The codes of the placement ledger, each with the sentence that explains it.

A code says why an executor does not run a call. A checker may return a :class:`~thunder.extend.Refusal` with
a code that is not listed here; the other codes are core's. `docs/plans.md` has the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

__all__ = ["ABSENT", "REFUSED", "SKIPPED", "AbsenceCode", "RefusalCode", "SkipCode"]

RefusalCode = Literal[
    "no-implementation",
    "argument",
    "checker",
    "kind",
    "fusion",
    "not-fused",
    "no-function",
    "refused",
    "cost",
    "static_shape",
    "view",
    "gradient",
    "writes",
    "random",
    "package",
    "values",
    "dtype",
    "number",
    "small",
    "devices",
]
SkipCode = Literal["claimed-earlier", "already-executable", "fixed", "no-cost", "replaced"]
AbsenceCode = Literal["not-listed", "unavailable", "failed", "incompatible", "disabled"]

#: the executor was consulted about the call, and does not run it
REFUSED: Mapping[RefusalCode, str] = MappingProxyType(
    {
        "no-implementation": "it has no implementation of the operator",
        "argument": "its implementation does not take an argument of the call",
        "checker": "its checker returned False, without a reason",
        "kind": "it does not run single operators, or does not fuse",
        "fusion": "the call is a fusion already",
        "not-fused": "it claimed the call for a fusion, and put it into no region",
        "no-function": "it registered the operator without a function",
        "refused": "its `can_execute` or `can_fuse` returned False",
        "cost": "it accepts the call, and another executor's implementation costs less",
        "static_shape": "its code is for sizes that are numbers, and the call's are symbols",
        "view": "it copies, and the operator returns a view, which the program returns",
        "gradient": "in training, the gradient rule computes the call with other operators",
        "writes": "the call writes to an argument, and is computed by operators that do not write",
        "random": "random numbers are drawn by torch, so that seeds mean the same",
        "package": "the operator belongs to a package, whose executor runs it, or it is taken apart",
        "values": "torch checks values of its arguments, and the operators in it would not",
        "dtype": "its regions are not for the dtype of a value",
        "number": "its regions compute tensors from tensors, and a value of the call is a number",
        "small": "its region would be of one kernel, and gains nothing",
        "devices": "its region has tensors of several devices",
    }
)

#: the executor is part of the compile, and was not consulted about the call
SKIPPED: Mapping[SkipCode, str] = MappingProxyType(
    {
        "claimed-earlier": "an earlier executor of the list claimed the call",
        "already-executable": "the call runs as it is, and the executor has no other implementation of it",
        "fixed": "an execution transform recorded the call; only fallback executors are consulted about it",
        "no-cost": "implementations of the call were compared by their costs, and its has none",
        "replaced": "the call was replaced by other calls, and the executor has no code for it",
    }
)

#: the executor is not part of the compile
ABSENT: Mapping[AbsenceCode, str] = MappingProxyType(
    {
        "not-listed": "it is not among the executors of the compile",
        "unavailable": "it cannot be used here: a library or a device is missing",
        "failed": "its plugin failed to load",
        "incompatible": "its plugin needs another version of core or of the hooks",
        "disabled": "its plugin is disabled",
    }
)

for _codes, _table in ((RefusalCode, REFUSED), (SkipCode, SKIPPED), (AbsenceCode, ABSENT)):
    assert get_args(_codes) == tuple(_table), "each code has its sentence"

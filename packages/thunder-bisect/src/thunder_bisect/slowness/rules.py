"""The reasons why a program can be slow: one rule for each.

A rule looks at the evidence, and returns a finding, or None where its reason costs little. What is little is
in the constants of this module: a rule may say nothing of a program that is as it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from thunder.core.tags import OpTags
from thunder_bisect.slowness.advice import ADVICE, DECISIONS, NO_CACHE, SIZES, STATE
from thunder_bisect.slowness.answer import Finding
from thunder_bisect.slowness.evidence import Evidence, Timed
from thunder_bisect.slowness.texts import counted, listed, share_text, time_text

__all__ = ["RULES", "findings_of"]

#: a part of a call below this share is not a finding
_SHARE: Final = 0.2
#: nor is one below this time in seconds
_SECONDS: Final = 20e-6
#: the fewest statements that are many small ones
_MANY: Final = 8
#: the fewest bytes that are much memory
_BYTES: Final = 4 << 20
#: the most calls of a region that is small
_FEW_CALLS: Final = 3
#: the names of operators whose results are copies of their operand
_COPIES: Final = frozenset({"contiguous", "clone", "to", "cpu", "cuda", "copy_", "device_put", "copy"})
#: the names of statements that read numbers or answers out of tensors
_READS: Final = frozenset({"check_decision", "item", "tolist"})
#: codes of the ledger's refusals that are no loss: a region would gain nothing
_NO_LOSS: Final = frozenset({"number", "view", "small", "not-fused"})


def findings_of(evidence: Evidence) -> list[Finding]:
    """Return what the rules find, the most expensive first; what costs memory alone comes last.

    Where they find nothing, and the program is slower than eager, its longest statements are the finding.
    """
    rules = RULES if evidence.is_steady else CALL_RULES
    found = [finding for rule in rules if (finding := rule(evidence)) is not None]
    if not found and (finding := _kernels(evidence)) is not None:
        found = [finding]
    return sorted(found, key=lambda finding: -(finding.seconds or 0.0))


def _finding(
    kind: str, e: Evidence, seconds: float, text: str, statements: Sequence[Timed] = (), **changes: Any
) -> Finding:
    longest = sorted(statements, key=lambda timed: -timed.seconds)
    places = dict.fromkeys(timed.location for timed in longest if timed.location is not None)
    fields: dict[str, Any] = {
        "advice": ADVICE[kind],
        "share": min(seconds / e.compiled.fastest, 1.0),
        **changes,
    }
    return Finding(kind=kind, seconds=seconds, evidence=text, where=tuple(places)[:3], **fields)


def _is_much(seconds: float, e: Evidence, share: float = _SHARE) -> bool:
    return seconds >= _SECONDS and seconds >= share * e.compiled.fastest


def _is_slower(e: Evidence, factor: float) -> bool:
    """Return whether calls take longer than those of eager by a factor: the fastest, and most in turns."""
    return e.compiled.fastest > factor * e.eager.fastest and e.compiled.exceeds(e.eager) >= 0.9


def _sum(statements: Sequence[Timed]) -> float:
    return sum(timed.seconds for timed in statements)


# -- calls that are not the same program again ---------------------------------------------------------------


def _first_call(e: Evidence) -> Finding | None:
    """Find an object that was called once: what was timed was its compile."""
    seconds = e.before.compile_seconds
    if e.before.calls != 1 or e.before.compiles != 1 or seconds < 2 * e.compiled.fastest:
        return None
    text = (
        f"the only call before this compiled the program in {time_text(seconds)}, most of it in the stage "
        f"{e.before.longest_stage!r}. A warm call takes {time_text(e.compiled.fastest)}"
    )
    return _finding("first call", e, seconds, text, share=seconds / e.compiled.fastest)


def _recompiles(e: Evidence) -> Finding | None:
    """Find an object that many of its calls compile again."""
    during = 2 * e.compiles >= e.calls > 0
    before = e.before.compiles >= 3 and 3 * e.before.compiles >= e.before.calls
    before = before and not any(reason.now_free for reason in e.before.reasons)  # it was the last for sizes
    if not (during or before) or 2 * e.python_runs >= e.calls > 0:
        return None
    compiles, calls = (e.compiles, e.calls) if during else (e.before.compiles, e.before.calls)
    reasons = e.reasons if during else e.before.reasons
    seconds = (e.compile_seconds if during else e.before.compile_seconds) * compiles / calls
    reason = str(reasons[0]) if reasons else ""
    why = f"the last time because of {reason}" if reasons else "no program of it is kept"
    special = (advice for applies, advice in RECOMPILE_ADVICE if applies(reason, e))
    return _finding(
        "recompiles",
        e,
        seconds,
        f"{compiles} of {counted(calls, 'call')} compiled the program; {why}",
        share=seconds / e.compiled.fastest,
        advice=next(special, ADVICE["recompiles"]),
    )


def _python_runs(e: Evidence) -> Finding | None:
    """Find calls that Python runs, since no program is compiled for them any more, or it raises."""
    if e.calls == 0 or 2 * e.python_runs < e.calls:
        return None
    text = (
        f"in {e.python_runs} of {counted(e.calls, 'call')} Python ran the program as it was written: it "
        "raises inside, or was compiled for too many answers to questions about data"
    )
    return _finding("run by Python", e, e.compiled.fastest, text)


# -- around the statements -----------------------------------------------------------------------------------


def _guards(e: Evidence) -> Finding | None:
    """Find a prologue that is a large part of each call."""
    if not _is_much(e.guards, e):
        return None
    text = (
        f"each call first checks {counted(e.facts, 'fact')} of what the program reads, {e.tensors:,} of them "
        "about tensors"
    )
    return _finding("guards", e, e.guards, text)


def _small_program(e: Evidence) -> Finding | None:
    """Find a program that computes less than a call of a compiled object costs."""
    rest = e.compiled.fastest - e.computing
    is_small = e.computing < 0.45 * e.compiled.fastest and e.compiled.fastest < 1e-3
    if not is_small or not _is_slower(e, 1.2) or e.guards > 0.7 * rest:
        return None
    text = f"its statements take {time_text(e.computing)}, and what is around them {time_text(rest)}"
    return _finding("small program", e, rest, text)


def _surroundings(e: Evidence) -> Finding | None:
    """Find a call of which much is neither guards nor statements, and which is slower than in eager."""
    rest = e.compiled.fastest - e.guards - e.computing
    if rest < max(100e-6, 0.3 * e.compiled.fastest) or not _is_slower(e, 1.15):
        return None
    autograd = ", and torch's autograd runs its backward" if e.with_backward else ""
    text = (
        f"{time_text(rest)} are neither guards nor statements: results are built for the caller{autograd}. "
        f"The program reads {counted(e.inputs, 'tensor')}"
    )
    return _finding("around the statements", e, rest, text)


def _threads(e: Evidence) -> Finding | None:
    """Find a program that is faster with fewer threads."""
    if not e.fewer_threads:
        return None
    number, times = min(e.fewer_threads.items(), key=lambda item: item[1].fastest)
    saved = e.compiled.fastest - times.fastest
    if not _is_much(saved, e):
        return None
    text = (
        f"torch uses {counted(e.threads, 'thread')} on {counted(e.processors, 'processor')}; with {number} a "
        f"call takes {time_text(times.fastest)}, not {time_text(e.compiled.fastest)}"
    )
    return _finding("threads", e, saved, text, advice=ADVICE["threads"].format(threads=number))


# -- statements ----------------------------------------------------------------------------------------------


def _synchronisations(e: Evidence) -> Finding | None:
    """Find reads of numbers out of tensors, each of which waits for what was computed before."""
    reads = [timed for timed in e.statements if _is_read(timed)]
    seconds = _sum([timed for timed in e.statements if timed in reads or timed.name == "compute_number"])
    share = 0.05 if len(reads) >= _MANY else _SHARE
    if not reads or not (e.device != "cpu" or seconds >= share * e.compiled.fastest):
        return None
    waits = "waits for the device, and " if e.device != "cpu" else ""
    text = (
        f"numbers or answers are read out of tensors {counted(len(reads), 'time')} in each call; each "
        f"{waits}ends a region, since what comes after depends on it"
    )
    return _finding("synchronisations", e, seconds, text, reads)


def _is_read(timed: Timed) -> bool:
    return timed.name in _READS or (OpTags.DEVICE_SYNC_OP in timed.tags and timed.name not in _COPIES)


def _copies(e: Evidence) -> Finding | None:
    """Find statements that only copy."""
    copies = [timed for timed in e.statements if timed.name in _COPIES]
    if not _is_much(_sum(copies), e, 0.25):
        return None
    text = f"{counted(len(copies), 'statement')} only copy: {listed(timed.name for timed in copies)}"
    return _finding("copies", e, _sum(copies), text, copies)


def _no_fusion(e: Evidence) -> Finding | None:
    """Find many elementwise statements in a compile without a compiler of regions."""
    single = [timed for timed in e.statements if timed.is_elementwise and not _is_read(timed)]
    if e.fusers or len(single) < _MANY or not _is_much(_sum(single), e, 0.4):
        return None
    text = (
        f"{len(single)} elementwise operators and reductions run one by one, each with a kernel and memory "
        f"of its own: {listed(timed.name for timed in single)}. No executor of the compile compiles regions"
    )
    return _finding("no fusion", e, _sum(single), text, single)


def _left_out(e: Evidence) -> Finding | None:
    """Find statements that torch runs one by one where a region would have them, and the reasons."""
    left = [timed for timed in e.statements if timed.is_light and _reason(timed, e) is not None]
    left = [timed for timed in left if not _is_read(timed) and timed.name not in _COPIES]
    if not e.fusers or not _is_much(_sum(left), e, 0.3):
        return None
    longest = sorted(left, key=lambda timed: -timed.seconds)
    reasons = dict.fromkeys(f"{timed.name}: {_reason(timed, e)}" for timed in longest)
    text = f"{counted(len(left), 'statement')} outside of regions; {'; '.join(list(reasons)[:3])}"
    return _finding("left to torch", e, _sum(left), text, left)


def _reason(timed: Timed, e: Evidence) -> str | None:
    """Return why no region has a statement of an operator that has a row, or None."""
    for row in timed.rows:
        for refusal in row.refusals:
            if row.via != "fallback" and refusal.executor in e.fusers and refusal.code not in _NO_LOSS:
                return str(refusal.message)
    return None


def _fallback(e: Evidence) -> Finding | None:
    """Find functions that have no row: torch runs them as they are, and no region can have them."""
    calls = [timed for timed in e.statements if any(row.via == "fallback" for row in timed.rows)]
    if not _is_much(_sum(calls), e, 0.25):
        return None
    names = [row.symbol for timed in calls for row in timed.rows if row.via == "fallback"]
    text = f"thunder has no row for {listed(names)}: torch runs the calls as they are, outside of regions"
    return _finding("fallback", e, _sum(calls), text, calls)


def _small_regions(e: Evidence) -> Finding | None:
    """Find a program whose regions are many and small."""
    regions = [timed for timed in e.statements if timed.is_region]
    small = [timed for timed in regions if len(timed.rows) <= _FEW_CALLS]
    if len(small) < _MANY or not _is_much(_sum(small), e, 0.3):
        return None
    between = listed(timed.name for timed in e.statements if not timed.is_region)
    text = (
        f"{len(small)} of {counted(len(regions), 'region')} have at most {_FEW_CALLS} calls: what starting "
        f"one costs is paid for each. Between them run {between}"
    )
    return _finding("small regions", e, _sum(small), text, small)


# -- memory --------------------------------------------------------------------------------------------------


def _saved(e: Evidence) -> Finding | None:
    """Find a backward for which much more is saved than eager saves."""
    memory = e.memory
    if not e.with_backward or memory.saved < _BYTES:
        return None
    if memory.saved <= 1.3 * e.saved_by_eager:
        return None
    text = (
        f"{_mib(memory.saved)} are saved for the backward, beside {_mib(memory.inputs)} of arguments and "
        f"parameters; eager saves {_mib(e.saved_by_eager)}. The peak is {_mib(memory.peak)}"
    )
    return Finding(kind="memory", seconds=None, share=None, evidence=text, advice=ADVICE["memory"])


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


# -- what is left --------------------------------------------------------------------------------------------


def _kernels(e: Evidence) -> Finding | None:
    """Find the statements that take long where the program is slower than eager for no other reason."""
    lost = e.compiled.fastest - e.eager.fastest
    if lost < _SECONDS or not _is_slower(e, 1.25) or e.compiled.cpu < 1.15 * e.eager.cpu:
        return None
    longest = sorted(e.statements, key=lambda timed: -timed.seconds)[:3]
    names = ", ".join(f"{timed.name} {share_text(timed.seconds / e.compiled.fastest)}" for timed in longest)
    text = (
        f"no other reason was found, and a call takes {time_text(lost)} more than in eager. Longest: {names}"
    )
    return _finding("kernels", e, lost, text, longest)


#: in place of the general advice on recompiles, the first that applies to the last reason
RECOMPILE_ADVICE: Final[Sequence[tuple[Callable[[str, Evidence], bool], str]]] = (
    (lambda reason, e: e.cache == "no caching", NO_CACHE),
    (lambda reason, e: reason.startswith("decision"), DECISIONS),
    (lambda reason, e: "shape" in reason or "size" in reason, SIZES),
    (lambda reason, e: bool(e.written) or not reason, STATE),
)
#: the rules about calls that are not the same program again
CALL_RULES: Final[Sequence[Callable[[Evidence], Finding | None]]] = (_first_call, _recompiles, _python_runs)
#: all rules; those about a program apply if the measured calls ran it
RULES: Final[Sequence[Callable[[Evidence], Finding | None]]] = (
    *CALL_RULES,
    _guards,
    _small_program,
    _surroundings,
    _threads,
    _synchronisations,
    _copies,
    _no_fusion,
    _left_out,
    _fallback,
    _small_regions,
    _saved,
)

"""Cheaper rounding to bfloat16 in the C++ that TorchInductor generates for CPUs.

A result that is rounded as eager rounds it is converted to bfloat16 and back. Inductor writes two conversions
of vectors, which also narrow and widen them:

    auto tmp7 = at::vec::convert<at::BFloat16>(tmp6);        →
    auto tmp8 = at::vec::convert<float>(tmp7);               →  auto tmp8 = thunder_rounded(tmp6);

The function has the same result for each float32, NaN included, in about half the instructions. It is left
out where the vector has been rounded already, and since then only negated, compared or chosen from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch._inductor.codegen.cpp import KernelGroup
from torch._inductor.cpu_vec_isa import VecAVX2, VecAVX512, VecISA, pick_vec_isa

__all__ = ["cheap_rounding", "with_cheap_rounding"]

#: For a set of instructions: adds half of the last bfloat16 digit, less one unit if that digit is even, and
#: cuts the lower half off. at::vec::convert makes 0xffff of each NaN.
_STATEMENTS: Mapping[type[VecISA], str] = {
    VecAVX512: """\
    const __m512 vector = x;
    const __m512i bits = _mm512_castps_si512(vector);
    const __m512i upper = _mm512_set1_epi32(0xffff0000);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __mmask16 ordered = _mm512_cmp_ps_mask(vector, vector, _CMP_ORD_Q);
    const __m512i sum = _mm512_mask_add_epi32(upper, ordered, bits, half);
    return _mm512_castsi512_ps(_mm512_and_si512(sum, upper));
""",
    VecAVX2: """\
    const __m256 vector = x;
    const __m256i bits = _mm256_castps_si256(vector);
    const __m256i upper = _mm256_set1_epi32(0xffff0000);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(vector, vector, _CMP_UNORD_Q));
    const __m256i sum = _mm256_or_si256(_mm256_add_epi32(bits, half), unordered);
    return _mm256_castsi256_ps(_mm256_and_si256(sum, upper));
""",
}
#: without directives of the preprocessor, so that kernels can stand beside each other in a file
_FUNCTIONS = """\
inline at::vec::Vectorized<float> thunder_rounded(const at::vec::Vectorized<float>& x) {
%s}
template <int N>
inline at::vec::VectorizedN<float, N> thunder_rounded(const at::vec::VectorizedN<float, N>& x) {
    at::vec::VectorizedN<float, N> result;
    for (int i = 0; i < N; ++i) {
        result[i] = thunder_rounded(x[i]);
    }
    return result;
}
template <typename T>
inline at::vec::Vectorized<float> thunder_rounded(const at::vec::Vectorized<T>& x) {
    return at::vec::convert<float>(at::vec::convert<at::BFloat16>(x));
}
"""

_NAME = r"(tmp\d+)"
_DEFINITION = re.compile(rf"\b(?:auto|at::BFloat16|float) {_NAME}(?: = |\[)")
_NARROWED = re.compile(rf"auto {_NAME} = at::vec::convert<at::BFloat16(?:,\d+,float,\d+)?>\({_NAME}\);")
_WIDENED = re.compile(rf"at::vec::convert<float(?:,\d+,at::BFloat16,\d+)?>\({_NAME}\)")
#: vectors of bfloat16, from memory or rounded
_BFLOAT16 = re.compile(r"at::vec::(?:VectorizedN?<at::BFloat16\b[^>]*>::loadu\(|convert<at::BFloat16\b)")
#: values whose elements are those of vectors, or their negatives
_EXACT = tuple(
    re.compile(form)
    for form in (
        rf"at::vec::convert<float(?:,\d+,at::BFloat16,\d+)?>\({_NAME}\)",
        rf"\({_NAME}\)",
        rf"{_NAME}\.(?:neg|abs)\(\)",
        rf"at::vec::(?:maximum|minimum)\({_NAME}, {_NAME}\)",
        rf"at::vec::clamp_(?:min|max)\({_NAME}, decltype\(tmp\d+\)\(0\)\)",
        rf"decltype\(tmp\d+\)::blendv\({_NAME}, {_NAME}, tmp\d+(?:\.template cast<float,\d+>\(\))?\)",
    )
)


def with_cheap_rounding(source: str, isa: VecISA) -> str:
    """Return the source of a kernel in which float32 vectors are rounded without conversions.

    A vector that is also needed as bfloat16, for instance to be stored, is converted as before, and so is
    each vector for a set of instructions other than AVX2 and AVX512.
    """
    statements = next((text for kind, text in _STATEMENTS.items() if isinstance(isa, kind)), None)
    if statements is None:
        return source
    lines = source.split("\n")
    changed = False
    for number, line in enumerate(lines):
        narrowed = _NARROWED.search(line)
        if narrowed is None:
            continue
        name, rounded = narrowed.groups()
        scope = range(number + 1, _end_of_scope(lines, number, name))
        uses = [i for i in scope if re.search(rf"\b{name}\b", lines[i])]
        if not all(_only_widens(lines[i], name) for i in uses):
            continue
        for i in uses:
            lines[i] = _WIDENED.sub(
                lambda use, name=name, rounded=rounded: (  # type: ignore[misc]
                    f"thunder_rounded({rounded})" if use[1] == name else use[0]
                ),
                lines[i],
            )
        lines[number] = line.replace(narrowed[0], "")
        changed = True
    if not changed:
        return source
    _leave_exact(lines)
    return "\n".join(lines).replace('extern "C"', _FUNCTIONS % statements + 'extern "C"', 1)


def _end_of_scope(lines: list[str], number: int, name: str) -> int:
    """Return the number of the line that defines a name again; names are counted from 0 in each loop."""
    for later in range(number + 1, len(lines)):
        definition = _DEFINITION.search(lines[later])
        if definition is not None and definition[1] == name:
            return later
    return len(lines)


def _only_widens(line: str, name: str) -> bool:
    """Return whether a line reads a bfloat16 vector only to convert it to float32."""
    widened = sum(use[1] == name for use in _WIDENED.finditer(line))
    return bool(widened == len(re.findall(rf"\b{name}\b", line)))


def _leave_exact(lines: list[str]) -> None:
    """Replace the rounding of vectors whose elements are bfloat16 numbers by the vectors."""
    exact: set[str] = set()
    for number, line in enumerate(lines):
        definition = _DEFINITION.search(line)
        if definition is None:
            continue
        name = definition[1]
        value = line[definition.end() :].rstrip(";")
        rounded = re.fullmatch(rf"thunder_rounded\({_NAME}\)", value)
        if rounded is not None and rounded[1] in exact:
            lines[number] = line.replace(value, f"({rounded[1]})")
        if rounded is not None or _is_exact(value, exact):
            exact.add(name)
        else:
            exact.discard(name)


def _is_exact(value: str, exact: set[str]) -> bool:
    """Return whether a vector has bfloat16 numbers as elements if those in `exact` have."""
    if _BFLOAT16.match(value):
        return True
    form = next(filter(None, (form.fullmatch(value) for form in _EXACT)), None)
    return form is not None and all(source in exact for source in form.groups())


_enabled: ContextVar[bool] = ContextVar("thunder_inductor_cheap_rounding", default=False)


@contextmanager
def cheap_rounding() -> Iterator[None]:
    """Within the context, C++ kernels that TorchInductor generates have cheap roundings."""
    token = _enabled.set(True)
    try:
        yield
    finally:
        _enabled.reset(token)


def _extend(generate: Callable[..., str]) -> Callable[..., str]:
    """Return a generator of kernels that has an effect of its own only in `cheap_rounding`."""

    @functools.wraps(generate)
    def codegen_group(*args: Any, **kwargs: Any) -> str:
        source = generate(*args, **kwargs)
        return with_cheap_rounding(source, pick_vec_isa()) if _enabled.get() else source

    return codegen_group


# TorchInductor has no hook for the text of a kernel. Replaced once, and not in each compile: regions may be
# compiled in several threads.
KernelGroup.codegen_group = _extend(KernelGroup.codegen_group)  # type: ignore[method-assign]

"""Roundings to bfloat16 in generated C++: their text, and their results for each kind of number."""

from __future__ import annotations

import re

import torch
from torch._inductor.cpu_vec_isa import VecAVX2, VecAVX512, VecISA, VecNEON

import thunder
from thunder_inductor import vector_rounding
from thunder_inductor.vector_rounding import with_cheap_rounding


def kernel(*lines: str) -> str:
    return "\n".join(['extern "C" void kernel()', "{", *lines, "}"])


def statements(source: str) -> list[str]:
    definition = with_cheap_rounding(source, VecAVX512()).split('extern "C"')[1]
    return [line for line in definition.split("\n")[2:-1] if line]


def test_a_vector_that_is_rounded_and_widened_is_not_converted():
    source = kernel(
        "auto tmp7 = at::vec::convert<at::BFloat16>(tmp6);",
        "auto tmp8 = at::vec::convert<float>(tmp7);",
        "auto tmp9 = at::vec::convert<at::BFloat16,1,float,2>(tmp8);",
        "auto tmp10 = at::vec::convert<float,2,at::BFloat16,1>(tmp9);",
    )
    assert statements(source) == ["auto tmp8 = thunder_rounded(tmp6);", "auto tmp10 = (tmp8);"]


def test_a_vector_that_is_stored_as_bfloat16_is_converted():
    source = kernel(
        "auto tmp7 = at::vec::convert<at::BFloat16>(tmp6);",
        "auto tmp8 = at::vec::convert<float>(tmp7);",
        "tmp7.store(out_ptr0);",
    )
    assert with_cheap_rounding(source, VecAVX512()) == source


def test_a_set_of_instructions_decides_how_vectors_are_rounded():
    source = kernel(
        "auto tmp7 = at::vec::convert<at::BFloat16>(tmp6);", "auto tmp8 = at::vec::convert<float>(tmp7);"
    )
    assert "_mm512_mask_add_epi32" in with_cheap_rounding(source, VecAVX512())
    assert "_mm256_add_epi32" in with_cheap_rounding(source, VecAVX2())
    assert with_cheap_rounding(source, VecNEON()) == source


def test_names_of_another_loop_are_other_vectors():
    source = kernel(
        "auto tmp7 = at::vec::convert<at::BFloat16>(tmp6);",
        "auto tmp8 = at::vec::convert<float>(tmp7);",
        "auto tmp7 = at::vec::Vectorized<c10::Half>::loadu(in_ptr0);",
        "auto tmp8 = at::vec::convert<float>(tmp7);",
        "tmp7.store(out_ptr0);",
    )
    assert statements(source) == ["auto tmp8 = thunder_rounded(tmp6);", *source.split("\n")[4:-1]]


def test_negatives_and_choices_of_rounded_vectors_are_not_rounded():
    source = kernel(
        "auto tmp0 = at::vec::Vectorized<at::BFloat16>::loadu(in_ptr0);",
        "auto tmp1 = at::vec::convert<float>(tmp0);",
        "auto tmp2 = at::vec::clamp_min(tmp1, decltype(tmp1)(0));",
        "auto tmp3 = at::vec::convert<at::BFloat16>(tmp2);",
        "auto tmp4 = at::vec::convert<float>(tmp3);",
        "auto tmp5 = tmp4 * tmp1;",
        "auto tmp6 = at::vec::convert<at::BFloat16>(tmp5);",
        "auto tmp7 = at::vec::convert<float>(tmp6);",
    )
    lines = source.split("\n")
    expected = [*lines[2:5], "auto tmp4 = (tmp2);", lines[7], "auto tmp7 = thunder_rounded(tmp5);"]
    assert statements(source) == expected


def test_vectors_of_integers_and_half_precision_are_rounded():
    source = kernel(
        "auto tmp0 = at::vec::Vectorized<int32_t>::loadu(in_ptr0);",
        "auto tmp1 = at::vec::convert<float>(tmp0);",
        "auto tmp2 = at::vec::convert<at::BFloat16>(tmp1);",
        "auto tmp3 = at::vec::convert<float>(tmp2);",
    )
    assert statements(source)[-1] == "auto tmp3 = thunder_rounded(tmp1);"


def bit_patterns() -> torch.Tensor:
    """Return float32 numbers of all exponents: ties, neighbours of ties, infinities, NaNs, subnormals."""
    upper = torch.arange(-(2**15), 2**15, 3, dtype=torch.int32) << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    return (upper[:, None] | lower).reshape(-1).view(torch.float32)


def test_each_number_is_rounded_as_eager_rounds_it(monkeypatch):
    sources = []

    def noted(source: str, isa: VecISA) -> str:
        sources.append(with_cheap_rounding(source, isa))
        return sources[-1]

    monkeypatch.setattr(vector_rounding, "with_cheap_rounding", noted)

    def program(x: torch.Tensor, integers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        short = (x + 0).to(torch.bfloat16)
        return short.neg().float() * 2, integers.to(torch.bfloat16).float() + x

    x = bit_patterns()
    arguments = (x, torch.arange(len(x), dtype=torch.int32))
    actual, expected = thunder.jit(program)(*arguments), program(*arguments)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert re.search(r"= thunder_rounded\(tmp\d+\);", "".join(sources))

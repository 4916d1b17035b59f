"""The memory of the code of regions: read from its text."""

from __future__ import annotations

import pytest

from thunder_inductor.wrapper_memory import bytes_beside_results

CHAIN = """
def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
    kernel_0(arg0_1, buf0)
    buf1 = buf0; del buf0
    buf2 = empty_strided_cpu((8, ), (1, ), torch.float64)
    kernel_1(buf1, buf2)
    del buf1
    buf3 = empty_strided_cpu((8, ), (1, ), torch.float32)
    kernel_2(buf2, buf3)
    return (RESULT, )
"""


@pytest.mark.parametrize(
    ("result", "strides", "count"),
    [
        ("buf3", (1,), 128 + 64 - 32),
        ("buf2", (1,), 128),
        ("buf2", (2,), 128),  # copied: beside the copy there was more before
        ("reinterpret_tensor(buf2, (2, 4), (4, 1), 0)", (4, 1), 128),
        ("arg0_1", (1,), 128 + 64),
    ],
)
def test_variables_are_followed(result, strides, count):
    assert bytes_beside_results(CHAIN.replace("RESULT", result), [strides]) == count


def test_a_copied_result_is_counted_twice():
    text = "def call(args):\n    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)\n    return (buf0, )"
    assert bytes_beside_results(text, [(4, 1)]) == 0
    assert bytes_beside_results(text, [(1, 4)]) == 64

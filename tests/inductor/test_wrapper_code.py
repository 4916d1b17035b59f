"""Generated modules are taken apart only where their function runs without them."""

from __future__ import annotations

import pytest
import torch

from thunder_inductor.wrapper_code import Wrapper, function_of, wrapper_of

KERNEL = """async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    #pragma GCC ivdep
    out_ptr0[0] = in_ptr0[0];
}
''')"""

CALL = """arg0_1, = args
        args.clear()
        buf0 = empty_strided_cpu((1, ), (1, ), torch.float32)
        cpp_fused_0(arg0_1, buf0)
        del arg0_1
        return (buf0, )
"""


def module(kernel: str = KERNEL, call: str = CALL) -> str:
    """Return the text of a generated module."""
    return f"""
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
cpp_fused_0 = {kernel}
async_compile.wait(globals())
class Runner:
    def __init__(self, partitions):
        self.partitions = partitions
    def call(self, args):
        {call}
runner = Runner(partitions=[])
call = runner.call
"""


def parts(text: str) -> Wrapper | None:
    """Return the parts of a module, where `extern_kernels` has torch's `mm`."""
    return wrapper_of(text, lambda name: name == "mm")


def test_the_function_runs_with_kernels_that_are_given_to_it() -> None:
    wrapper = parts(module())
    assert wrapper is not None
    (kernel,) = wrapper.kernels.values()
    assert kernel.types == ("const float*", "float*")
    assert "#include" not in kernel.definition
    assert 'extern "C"' not in kernel.definition
    run = function_of(wrapper.function, {"cpp_fused_0": lambda x, y: y.copy_(x)})
    inputs = [torch.tensor([3.0])]
    assert [t.tolist() for t in run(inputs)] == [[3.0]]
    assert inputs == [], "the list is emptied"


def test_products_are_torchs_functions() -> None:
    call = CALL.replace("cpp_fused_0(arg0_1, buf0)", "extern_kernels.mm(arg0_1, arg0_1, out=buf0)")
    wrapper = parts(module(call=call.replace("(1, ), (1, )", "(1, 1), (1, 1)")))
    assert wrapper is not None
    assert wrapper.kernels == {}
    assert function_of(wrapper.function, {})([torch.full((1, 1), 3.0)])[0].item() == 9


def test_an_operator_whose_result_is_checked_needs_no_module() -> None:
    check = "assert_alignment(buf0, 16, 'torch.ops.aten.add.Tensor')"
    call = CALL.replace("cpp_fused_0(arg0_1, buf0)", f"buf0 = aten.add(arg0_1, 1)\n        {check}")
    wrapper = parts(module(call=call))
    assert wrapper is not None
    assert function_of(wrapper.function, {})([torch.tensor([3.0])])[0].item() == 4


@pytest.mark.parametrize(
    "text",
    [
        module(call=CALL.replace("buf0 = ", "buf1 = self.partitions[0](args)\n        buf0 = ")),
        module(call=CALL.replace("cpp_fused_0(arg0_1, buf0)", "extern_kernels.bmm(arg0_1, buf0)")),
        module(call=CALL.replace("arg0_1, buf0", "arg0_1, _frozen_param0")),
        module(kernel=KERNEL.replace("cpp_pybinding(", "triton('name', ").replace("const float*", "x")),
        module(kernel=KERNEL.replace("extern", "#define N 3\nextern")),
        module(kernel=KERNEL.replace("['const float*'", "['const int64_t'")),
        "def other(args):\n    return args\n",
    ],
    ids=["graphs", "extern", "constant", "triton", "directive", "number", "no-function"],
)
def test_a_module_that_needs_more_is_left_whole(text: str) -> None:
    assert parts(text) is None

"""What programs say to TorchDynamo and to the profiler, and flags of torch's kernels that they set."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import thunder

F = torch.nn.functional


@torch.compiler.disable
def _disabled(x):
    return x * 3


@torch.compile
def _compiled(x):
    return x + 1


@torch.profiler.record_function("labelled")
def _labelled(x):
    with torch.profiler.record_function("inner"):
        return x * 2


def test_labels_and_marks_of_other_compilers_are_traced_through():
    def program(x):
        torch._dynamo.graph_break()
        return _labelled(_compiled(_disabled(x)))

    compiled, x = thunder.jit(program), torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), (x * 3 + 1) * 2)
    assert thunder.cache_misses(compiled) == 1


def test_profiler_is_refused_with_what_to_do():
    def program(x):
        with torch.profiler.profile():
            return x + 1

    with pytest.raises(
        thunder.core.errors.UnsupportedProgram, match=r"starts a profiler[\s\S]*around the call"
    ):
        thunder.jit(program)(torch.ones(2))


def test_flags_of_kernels_are_set_where_the_program_sets_them():
    def program(x):
        with sdpa_kernel(SDPBackend.MATH):
            enabled = torch.backends.cuda.flash_sdp_enabled()
            y = F.scaled_dot_product_attention(x, x, x)
        return y, enabled, SDPBackend.MATH == SDPBackend.FLASH_ATTENTION

    compiled, x = thunder.jit(program), torch.randn(1, 2, 4, 8)
    for _ in range(2):
        value, *rest = compiled(x)
        torch.testing.assert_close(value, F.scaled_dot_product_attention(x, x, x))
        assert rest == [False, False]
        assert torch.backends.cuda.flash_sdp_enabled()
    assert thunder.cache_misses(compiled) == 1
    text = str(thunder.last_traces(compiled)[-1])
    flag = "set_backend_flag('_set_sdp_use_flash', {})"
    parts = flag.format(False), "scaled_dot_product", flag.format(True)
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_flag_that_was_read_is_a_fact_and_one_that_stays_is_set_in_each_call():
    def program(x):
        torch.backends.cuda.enable_math_sdp(not torch.backends.cuda.math_sdp_enabled())
        return x * int(torch.backends.cuda.math_sdp_enabled())

    compiled, x = thunder.jit(program), torch.ones(2)
    try:
        for expected in (0.0, 1.0, 0.0, 1.0):
            assert compiled(x)[0] == expected == torch.backends.cuda.math_sdp_enabled()
        assert thunder.cache_misses(compiled) == 2
    finally:
        torch.backends.cuda.enable_math_sdp(True)


def test_flags_are_set_back_after_a_program_that_raises():
    def program(x):
        torch.backends.cuda.enable_math_sdp(False)
        try:
            return torch.linalg.cholesky(x)
        finally:
            torch.backends.cuda.enable_math_sdp(True)

    compiled = thunder.jit(program)
    compiled(torch.eye(2))
    with pytest.raises(torch.linalg.LinAlgError, match="positive"):
        compiled(-torch.eye(2))
    assert torch.backends.cuda.math_sdp_enabled()


def test_precision_of_kernels_may_be_set_to_what_it_is():
    def program(x, enabled):
        with torch.backends.cudnn.flags(enabled=enabled):
            return x * 2

    assert torch.equal(thunder.jit(program)(torch.ones(2), False), torch.full((2,), 2.0))


def test_the_number_of_threads_is_set_in_each_call_and_read_again():
    def program(x, count):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        return x * torch.get_num_threads() + before

    before, compiled = torch.get_num_threads(), thunder.jit(program)
    try:
        for start, count in ((1, 2), (1, 2), (2, 1), (2, 2)):
            torch.set_num_threads(start)
            assert torch.equal(compiled(torch.ones(2), count), torch.full((2,), float(count + start)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)


def test_cond_calls_one_of_its_functions_by_a_decision():
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (x,))

    compiled = thunder.jit(program)
    for value in (1.0, -1.0, 1.0):
        x = torch.full((2,), value, requires_grad=True)
        out = compiled(x)
        expected = x.sin() if value > 0 else x * 2
        assert torch.equal(out, expected)
        gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (out, expected)]
        assert torch.equal(*gradients)
    assert thunder.cache_misses(compiled) == 2


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_is_refused_within_a_program_and_sees_a_call_that_it_is_entered_around():
    def counted(x):
        with Count():
            return x * 2

    with pytest.raises(thunder.UnsupportedProgram, match=r"enters .*Count, a mode that handles operators"):
        thunder.jit(counted)(torch.ones(2))
    x = torch.ones(2)
    with Count() as count:
        thunder.jit(lambda x: x * 2 + 1)(x)
    assert count.calls == 2

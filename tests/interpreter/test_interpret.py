"""The public functions: interpret, make_opaque, is_jitting; and what a machine tells about a run."""

from __future__ import annotations

import sys
import threading
import traceback

import pytest

from thunder.base.package_files import package_folder
from thunder.interpreter import Machine, interpret, is_jitting, jitting, make_opaque


def test_interpret_keeps_name_and_result():
    def f(a, *, b=2):
        """Adds."""
        return a + b

    g = interpret(f)
    assert g.__name__ == "f"
    assert g.__doc__ == "Adds."
    assert g(1) == 3
    assert g(1, b=5) == 6


def test_methods_classes_and_builtins_can_be_interpreted():
    class C:
        def __init__(self, x):
            self.x = x

        def m(self, y):
            return self.x + y

    assert interpret(C)(3).x == 3
    assert interpret(C(3).m)(4) == 7
    assert interpret(len)([1]) == 1


def test_lookaside_replaces_a_callable():
    def f(x):
        return abs(x) + len([x])

    replaced = interpret(f, lookaside=lambda fn: (lambda x: 100) if fn is abs else None)
    assert replaced(-5) == 101


def test_history_has_depth_line_operation_and_argument():
    def g(x):
        return x + 1

    def f():
        return g(1)

    recorded = interpret(f, record_history=True)
    assert recorded() == 2
    history = recorded.machine.history
    depth, where, operation, argument = history[-1]
    assert depth == 1
    assert where == f"{__file__}:{f.__code__.co_firstlineno + 1}"
    assert operation == "RETURN_VALUE"
    assert argument == ""
    where = f"{__file__}:{g.__code__.co_firstlineno + 1}"
    assert (2, where, "LOAD_FAST", "0") in history or (2, where, "LOAD_FAST_BORROW", "0") in history
    assert recorded.machine.instructions == len(history)


def test_instructions_are_counted():
    counted = interpret(lambda n: [i for i in range(n)])
    counted(10)
    few = counted.machine.instructions
    counted(1000)
    assert counted.machine.instructions > 90 * few / 10


def test_opaque_functions_run_natively():
    seen = []

    @make_opaque
    def opaque():
        seen.append(sys._getframe(0).f_code.co_name)
        return sys._getframe(0)

    native_frame = interpret(lambda: opaque())()
    assert seen == ["opaque"]
    assert type(native_frame).__name__ == "frame"


def test_is_jitting_is_true_for_interpreted_callers():
    def generator():
        yield is_jitting()

    assert interpret(lambda: is_jitting())() is True
    assert list(interpret(generator)()) == [True]
    assert interpret(lambda: sorted([1, 2], key=lambda _: is_jitting()) and is_jitting())() is True
    assert is_jitting() is False


def test_make_opaque_marks_the_function_of_a_method_and_leaves_builtins():
    class C:
        def m(self):
            return type(sys._getframe(0)).__module__

    make_opaque(C().m)
    assert interpret(lambda: C().m())() == "builtins"
    assert make_opaque(len) is len


def test_make_opaque_refuses_classes_and_callable_objects():
    class C:
        def __call__(self):
            return 1

    with pytest.raises(TypeError, match="neither a function nor a method"):
        make_opaque(C)
    with pytest.raises(TypeError, match="neither a function nor a method"):
        make_opaque(C())


def test_is_jitting_only_within_a_tracer():
    assert not is_jitting()
    with jitting():
        assert is_jitting()
        assert interpret(is_jitting)()
    assert not is_jitting()


def failing(x):
    return 1 / x


def calls_failing():
    values = [3, 0]
    return [failing(v) for v in values]


def test_traceback_shows_the_lines_of_the_program_and_no_interpreter():
    with pytest.raises(ZeroDivisionError) as info:
        Machine().call(calls_failing)
    with pytest.raises(ZeroDivisionError) as expected:
        calls_failing()
    ours = [(s.name, s.lineno, s.line) for s in traceback.extract_tb(info.value.__traceback__)]
    theirs = [(s.name, s.lineno, s.line) for s in traceback.extract_tb(expected.value.__traceback__)]
    names = [name for name, _, _ in ours]
    start = names.index("calls_failing")
    assert ours[start:] == theirs[-len(ours[start:]) :]
    assert not any(
        s.filename.startswith(package_folder("interpreter"))
        for s in traceback.extract_tb(info.value.__traceback__)[start:]
    )


def test_full_tracebacks_show_the_interpreter_too():
    machine = Machine()
    machine.full_tracebacks = True
    with pytest.raises(ZeroDivisionError) as info:
        machine.call(calls_failing)
    filenames = [s.filename for s in traceback.extract_tb(info.value.__traceback__)]
    assert any(name.startswith(package_folder("interpreter")) for name in filenames)


def test_recursion_limit_is_that_of_the_program():
    limit = sys.getrecursionlimit()

    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    assert interpret(depth)(limit // 2) == limit // 2
    with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
        interpret(depth)(2 * limit)
    assert sys.getrecursionlimit() == limit


def test_two_threads_share_a_machine():
    machine = Machine()
    results = {}

    def work(n):
        total = 0
        for i in range(n):
            total += i
        return total, len(machine.frames)

    def run(n):
        results[n] = machine.call(work, (n,))

    threads = [threading.Thread(target=run, args=(n,)) for n in (500, 1000, 1500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: (n * (n - 1) // 2, 1) for n in (500, 1000, 1500)}


def test_generator_outlives_the_call_that_made_it():
    def gen(n):
        for i in range(n):
            try:
                yield i
            finally:
                done.append(i)

    done = []
    g = interpret(gen)(3)
    assert next(g) == 0
    assert list(g) == [1, 2]
    assert done == [0, 1, 2]


def test_frames_look_like_frames():
    def inner():
        here = sys._getframe()
        return here.f_code.co_name, here.f_back.f_code.co_name, here.f_lineno, sorted(here.f_back.f_locals)

    def outer():
        x = 1
        return inner(), x

    (name, back, line, names), _ = interpret(outer)()
    assert (name, back) == ("inner", "outer")
    assert line == inner.__code__.co_firstlineno + 2
    assert names == ["inner", "x"]


def test_state_of_handled_exceptions_is_native():
    def program():
        try:
            raise KeyError("k")
        except KeyError:
            return opaque_exception()

    @make_opaque
    def opaque_exception():
        return repr(sys.exception())

    assert interpret(program)() == "KeyError('k')"
    assert sys.exception() is None

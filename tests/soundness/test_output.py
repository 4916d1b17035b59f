"""What a program prints, warns and logs, at each call, beside what eager does: under other filters and levels
at each call, with the user's file and line.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from soundness.harness import ramp

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}
#: name → program, and the text of its refusal
REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {}
LOGGER = logging.getLogger("a program")
ADAPTER = logging.LoggerAdapter(LOGGER, {"user": 1})


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def refused(reason):
    """Return the decorator that adds a program that is refused with this text."""

    def add(f):
        REFUSED[f.__name__] = f, reason
        return f

    return add


# -- warnings ------------------------------------------------------------------------------------------------


@program
def warns(x):
    warnings.warn("old", stacklevel=1)
    return x * 2


@program
def warns_at_its_callers_line(x):
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return x * 2


def _warning_helper(x):
    warnings.warn("from a helper", stacklevel=2)
    return x


@program
def warns_in_a_helper_twice(x):
    return _warning_helper(x) + _warning_helper(x)


@program
def warns_in_a_loop(x):
    for i in range(3):
        warnings.warn("in a loop", stacklevel=1)
        warnings.warn(f"number {i} of {tuple(x.shape)}", FutureWarning, stacklevel=1)
    return x


@program
def warns_and_catches_it(x):
    try:
        warnings.warn("caught", stacklevel=1)
    except UserWarning as error:
        return x * 5, str(error)
    return x


@program
def warns_with_an_instance(x):
    warnings.warn(RuntimeWarning("an instance"), stacklevel=1)
    return x


@program
def ignores_in_a_region(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("unseen", stacklevel=1)
    warnings.warn("seen", stacklevel=1)
    return x


@program
def records_in_a_region(x):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        warnings.warn("a", stacklevel=1)
        warnings.warn("b", RuntimeWarning, stacklevel=1)
    return x * len(log), [(str(w.message), w.category.__name__, w.lineno) for w in log]


@program
def records_under_the_callers_filters(x):
    with warnings.catch_warnings(record=True) as log:
        for _ in range(2):
            warnings.warn("a", stacklevel=1)
    return x * len(log)


@program
def turns_a_warning_into_an_error(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a.*")
        try:
            warnings.warn("abc", stacklevel=1)
        except UserWarning as error:
            return x * 3, str(error)
    return x


@program
def enters_a_region_before_it_warns(x):
    with warnings.catch_warnings():
        pass
    warnings.warn("again after the region", stacklevel=1)
    return x


def _in_a_region(x, action):
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        for _ in range(2):
            warnings.warn(action, stacklevel=1)
        warnings.warn(action, stacklevel=1)
    return x


for _action in ("once", "default", "module", "always"):
    PROGRAMS[f"warns in a region with {_action}"] = functools.partial(_in_a_region, action=_action)


@program
def warns_and_raises(x):
    warnings.warn(f"shape {tuple(x.shape)}", stacklevel=1)
    raise ValueError("after the warning")


# -- logging -------------------------------------------------------------------------------------------------


@program
def logs(x):
    LOGGER.warning("hello %s", 3)
    return x


@program
def logs_a_tensor(x):
    LOGGER.info("shape %s %s", x.shape, x)
    LOGGER.debug("never %s", object())
    return x


@program
def asks_whether_a_level_is_on(x):
    if LOGGER.isEnabledFor(logging.INFO):
        LOGGER.log(25, "between two levels")
        return x * 2
    return x


@program
def logs_by_name(x):
    logging.getLogger("a program").error("keys: %(a)s", {"a": 2})
    return x


@program
def logs_to_the_root(x):
    logging.warning("root")
    return x


@program
def logs_with_extra_and_stacklevel(x):
    LOGGER.warning("extra", extra={"key": 1})
    LOGGER.warning("the caller's line", stacklevel=2)
    return x


@program
def logs_through_an_adapter(x):
    ADAPTER.info("adapted %d", 3)
    return x


class Named:
    def __str__(self):
        return "a name"


@program
def logs_objects(x):
    LOGGER.warning("object %s %r", Named(), (1, "a"))
    LOGGER.critical(Named())
    return x


# -- standard streams ----------------------------------------------------------------------------------------


@program
def writes_to_the_streams(x):
    sys.stdout.write("one\n")
    sys.stderr.write("two\n")
    sys.stdout.flush()
    return x


@program
def prints_with_options(x):
    print("a", file=sys.stderr)
    print("b", "c", sep="-", file=sys.stdout, end="")
    print(x, flush=True)
    return x


class Collected:
    def __init__(self):
        self.pieces = []

    def write(self, text):
        self.pieces.append(text)


@program
def prints_to_its_own_object(x):
    file = Collected()
    print("a", 1, file=file)
    return x * len(file.pieces), file.pieces


@program
def sets_the_print_options(x):
    torch.set_printoptions(precision=2)
    print(x / 3)
    torch.set_printoptions(precision=4)
    return x


@program
def prints_and_raises(x):
    print("before")
    raise KeyError("after the line")


@program
def does_everything_in_order(x):
    print("a")
    LOGGER.warning("b")
    warnings.warn("c", stacklevel=1)
    print("d", file=sys.stderr)
    return x


# -- the judge -----------------------------------------------------------------------------------------------


class Recorder(logging.Handler):
    def __init__(self, events):
        super().__init__()
        self.events = events

    def emit(self, record):
        place = (record.filename, record.lineno, record.funcName)
        self.events.append((record.name, record.levelname, record.getMessage(), *place))


def observed(f, filters, level, calls):
    """Everything that some calls put out: texts, warnings with their places, records with theirs."""
    globals().pop("__warningregistry__", None)
    seen = []
    LOGGER.propagate = False
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for action in filters:
            warnings.simplefilter(action)
        for _ in range(calls):
            events: list[Any] = []
            handler = Recorder(events)
            warnings.showwarning = lambda message, category, file, line, *rest, events=events: events.append(
                (str(message), category.__name__, file, line)
            )
            LOGGER.setLevel(level)
            for logger in (LOGGER, logging.getLogger()):
                logger.addHandler(handler)
            streams = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                try:
                    outcome: Any = f(ramp(3))
                except Exception as error:
                    outcome = repr(error)
            for logger in (LOGGER, logging.getLogger()):
                logger.removeHandler(handler)
            seen.append((str(outcome), events, *(stream.getvalue() for stream in streams)))
    return seen


FILTERS = ("always", "default", "error", "ignore", "once", "default", "error", "always")


@pytest.mark.parametrize("name", PROGRAMS)
def test_output_is_eagers_at_each_call(name):
    f = PROGRAMS[name]
    compiled = thunder.jit(f, recompile_limit=None)
    for number, action in enumerate(FILTERS):
        level = (logging.INFO, logging.ERROR)[number % 2]
        assert observed(compiled, [action], level, 2) == observed(f, [action], level, 2), action


def test_output_costs_no_compile_at_later_calls():
    compiled = thunder.jit(does_everything_in_order)
    observed(compiled, ["always"], logging.INFO, 3)
    assert thunder.cache_misses(compiled) == 1


def test_another_logger_in_the_same_place_is_noticed():
    holder = {"logger": LOGGER}

    def f(x):
        holder["logger"].warning("hello")
        return x

    compiled = thunder.jit(f)
    assert observed(compiled, ["always"], logging.INFO, 1) == observed(f, ["always"], logging.INFO, 1)
    holder["logger"] = logging.getLogger()
    assert observed(compiled, ["always"], logging.INFO, 1) == observed(f, ["always"], logging.INFO, 1)


# -- refusals ------------------------------------------------------------------------------------------------


@refused(r"replaces sys\.stdout")
def redirects_the_output(x):
    sys.stdout = Collected()
    print("unseen")
    return x


@refused("logs a traceback or a stack")
def logs_a_traceback(x):
    try:
        raise KeyError("k")
    except KeyError:
        LOGGER.exception("failed")
    return x


@refused("changes how logging is configured")
def changes_a_level(x):
    LOGGER.setLevel(logging.DEBUG)
    return x


@refused("changes how logging is configured")
def disables_a_logger(x):
    LOGGER.disabled = not LOGGER.disabled
    LOGGER.warning("maybe")
    return x


@refused(r"warnings\.warn_explicit")
def warns_explicitly(x):
    warnings.warn_explicit("a", UserWarning, "file.py", 1)
    return x


@refused(r"reads sys\.stdout\.isatty")
def asks_a_stream(x):
    return x * 2 if sys.stdout.isatty() else x


@refused("whose __del__ would run once")
def makes_an_object_with_a_finalizer(x):
    class Noisy:
        def __del__(self):
            print("gone")

    Noisy()
    return x


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_put_out_again_is_refused(name):
    program, reason = REFUSED[name]
    with pytest.raises(thunder.UnsupportedProgram, match=reason):
        thunder.jit(program)(ramp(3))


# -- differences ---------------------------------------------------------------------------------------------


def test_output_of_a_tensor_before_an_error_appears(capsys):
    def f(x):
        print("one")
        print(x)
        print("two")
        raise KeyError("k")

    shown = []
    for g in (f, thunder.jit(f)):
        with pytest.raises(KeyError, match="k"):
            g(ramp(3))
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_stacklevel_counts_the_functions_of_the_program():
    class Inner(torch.nn.Module):
        def forward(self, x):
            warnings.warn("of the caller", stacklevel=2)
            return x

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)

    def file_of(f):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            f(ramp(3))
        return log[0].filename

    model = Outer()
    assert file_of(model).endswith("module.py")
    assert file_of(thunder.jit(model)) == __file__


def test_warnings_of_operators_obey_the_callers_filters():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.nn.functional.softmax(x)

    def count(f):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            f(ramp(3))
        return len(log)

    assert (count(f), count(thunder.jit(f))) == (0, 1)

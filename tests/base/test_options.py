"""Options: declaration, checking, reading."""

from __future__ import annotations

import inspect
import pickle
from typing import Any, Literal

import pytest

import thunder
from thunder.base.errors import InvalidArgument, RegistrationError, UnknownOption
from thunder.base.options import (
    CACHE_OPTIONS,
    CORE_OPTIONS,
    JIT_ARGUMENTS,
    RETIRED_ARGUMENTS,
    SHARP_EDGES_OPTIONS,
    DebugOptions,
    Option,
    resolve_cache_option,
    resolve_options,
    resolve_sharp_edges_option,
)

TABLE = {
    option.name: option
    for option in (
        Option("size", int, 64, "A number."),
        Option("limit", int | None, 16, "A number or nothing."),
        Option("flag", bool, False, "Yes or no."),
        Option("mode", Literal["eager", "error"], "eager", "A word."),
        Option("budget", Literal["min-cut", "none"] | int, "min-cut", "A word or a number."),
    )
}


def test_every_core_option_has_a_default_that_is_used_and_a_sentence() -> None:
    assert dict(resolve_options({})) == {name: option.default for name, option in CORE_OPTIONS.items()}
    assert CORE_OPTIONS["max_cache_entries"].default == 64
    assert CORE_OPTIONS["recompile_limit"].default == 16
    assert all(option.doc.endswith(".") for option in CORE_OPTIONS.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", None), ("limit", 3), ("budget", "none"), ("budget", 10**9), ("mode", "error"), ("flag", True)],
)
def test_value_of_the_declared_type_is_taken(name: str, value: object) -> None:
    assert resolve_options({name: value}, TABLE)[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", None),
        ("size", True),
        ("size", "64"),
        ("limit", 1.5),
        ("budget", "max-cut"),
        ("budget", None),
        ("mode", "egaer"),
        ("flag", 1),
    ],
)
def test_value_of_another_type_is_refused_with_option_type_and_value(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        resolve_options({name: value}, TABLE)
    text = str(caught.value)
    assert name in text
    assert repr(value) in text
    assert "expected:" in text


def test_misspelt_literal_gets_the_nearest_and_the_allowed_values() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'eager'") as caught:
        resolve_options({"mode": "egaer"}, TABLE)
    assert '"eager" or "error"' in str(caught.value)


def test_unknown_option_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownOption) as caught:
        resolve_options({"cache_mode": "constant values"})
    assert str(caught.value).startswith("thunder.jit has no option 'cache_mode'. Did you mean 'cache'?")
    with pytest.raises(UnknownOption, match="Did you mean 'fail_on_recompile'"):
        resolve_options({"fail_on_recompil": True})


def test_option_of_a_missing_package_says_that_no_plugin_declares_it() -> None:
    with pytest.raises(
        UnknownOption, match=r"No installed plugin declares it; installed plugins: pythonex, torchex"
    ):
        resolve_options({"nv_enable_matmul": True}, plugins=("pythonex", "torchex"))


@pytest.mark.parametrize("name", RETIRED_ARGUMENTS)
def test_retired_argument_says_what_replaces_it(name: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        resolve_options({name: None})
    assert RETIRED_ARGUMENTS[name] in str(caught.value)
    assert name not in CORE_OPTIONS
    assert name not in JIT_ARGUMENTS


def test_options_record_who_was_read_and_what_was_given_in_vain() -> None:
    options = resolve_options({"mode": "error", "flag": True}, TABLE)
    assert options["mode"] == "error"
    assert options["size"] == 64
    assert options.read == ("size", "mode")
    assert options.unread == ("flag",)
    assert options.report() == "size = 64\nmode = 'error'\nflag = True  (given, not read)"


def test_declaration_is_checked() -> None:
    with pytest.raises(RegistrationError, match="default of the wrong type"):
        Option("a", int, "1", "")
    with pytest.raises(RegistrationError, match="keyword argument"):
        Option("a b", int, 1, "")
    Option("a", Literal["x"] | float | None, 1, "an int is a float")


@pytest.mark.parametrize("member", CACHE_OPTIONS)
def test_cache_option_by_member_and_by_text(member: CACHE_OPTIONS) -> None:
    assert resolve_cache_option(member) is member
    assert resolve_cache_option(member.value) is member


@pytest.mark.parametrize("member", SHARP_EDGES_OPTIONS)
def test_sharp_edges_option_by_member_and_by_text(member: SHARP_EDGES_OPTIONS) -> None:
    assert resolve_sharp_edges_option(member) is member
    assert resolve_sharp_edges_option(member.value) is member


def test_unknown_member_says_allowed_nearest_and_default() -> None:
    assert resolve_cache_option(None) is CACHE_OPTIONS.AUTOMATIC
    assert resolve_sharp_edges_option(None) is SHARP_EDGES_OPTIONS.ERROR
    with pytest.raises(InvalidArgument) as caught:
        resolve_cache_option("constant")
    text = str(caught.value)
    assert "Did you mean 'constant values'?" in text
    assert "'constant values', 'symbolic values', 'automatic', 'no caching', 'same input'" in text
    assert "default:  'automatic'" in text
    with pytest.raises(InvalidArgument, match="Did you mean 'error'"):
        resolve_sharp_edges_option("err")
    with pytest.raises(InvalidArgument, match="sharp_edges=3"):
        resolve_sharp_edges_option(3)  # type: ignore[arg-type]


@pytest.fixture
def debug_options(monkeypatch: pytest.MonkeyPatch) -> type[DebugOptions]:
    """DebugOptions with a table that the test may add to."""
    monkeypatch.setattr(DebugOptions, "_declared", dict(DebugOptions._declared))
    return DebugOptions


def test_debug_options_have_the_documented_defaults() -> None:
    options = DebugOptions()
    assert "check_traces: bool or 0 or 1 or 2 = False" in DebugOptions.list_options()
    for name in ("check_guards", "record_interpreter_history", "show_interpreter_progress"):
        assert getattr(options, name) is False
        assert f"{name}: bool = False" in DebugOptions.list_options()
    assert repr(options) == "DebugOptions()"


def test_debug_options_show_what_differs_from_the_default() -> None:
    options = DebugOptions(check_traces=True, check_guards=False)
    assert options.check_traces is True
    assert repr(options) == "DebugOptions(check_traces=True)"
    assert options == DebugOptions(check_traces=True)
    assert hash(options) == hash(DebugOptions(check_traces=True))
    assert pickle.loads(pickle.dumps(options)) == options


def test_misspelt_debug_option_gets_the_nearest() -> None:
    with pytest.raises(UnknownOption, match="Did you mean 'check_traces'"):
        DebugOptions(check_trace=True)
    with pytest.raises(InvalidArgument, match="check_traces"):
        DebugOptions(check_traces=3)
    with pytest.raises(AttributeError, match="Did you mean 'check_traces'"):
        _ = DebugOptions().check_trace


def test_debug_options_are_immutable() -> None:
    options = DebugOptions()
    with pytest.raises(AttributeError, match="immutable"):
        options.check_traces = True
    with pytest.raises(AttributeError, match="immutable"):
        del options.check_traces


def test_registered_debug_option_is_read_with_its_default(debug_options: Any) -> None:
    before = debug_options()
    debug_options.register_option("log_fusions", int | None, None, "How many fusions to log.")
    assert before.log_fusions is None
    assert debug_options(log_fusions=2).log_fusions == 2
    debug_options.register_option("log_fusions", int | None, None, "How many fusions to log.")
    with pytest.raises(RegistrationError, match="declared already"):
        debug_options.register_option("log_fusions", bool, False, "")


def test_check_traces_may_be_a_level() -> None:
    assert DebugOptions(check_traces=2).check_traces
    assert not DebugOptions(check_traces=0).check_traces


def test_the_arguments_that_are_suggested_are_those_of_jit() -> None:
    parameters = inspect.signature(thunder.jit).parameters.values()
    assert tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY) == JIT_ARGUMENTS

"""Errors: classes, message layout, suggestions."""

from __future__ import annotations

import pickle

import pytest

import thunder
from thunder.base import errors
from thunder.base.errors import Location, did_you_mean, nearest

BUILTIN_BASES = {
    "InvalidArgument": (TypeError, ValueError),
    "UnknownOption": (TypeError,),
    "NotCompiled": (TypeError,),
    "NeverCalled": (TypeError,),
    "UnknownExecutor": (ValueError,),
    "ExecutorUnavailable": (RuntimeError,),
    "RequirementNotMet": (RuntimeError,),
    "RegistrationError": (ValueError,),
    "OutsideTrace": (NotImplementedError,),
    "SameInputViolation": (RuntimeError,),
    "RecompileError": (RuntimeError,),
    "OperatorError": (RuntimeError,),
    "PluginNotInstalledError": (ModuleNotFoundError,),
    "UnsupportedProgram": (NotImplementedError,),
    "UnsupportedOperator": (NotImplementedError,),
    "DataDependentControlFlow": (NotImplementedError,),
    "SharpEdge": (NotImplementedError,),
    "MissingGradient": (NotImplementedError,),
    "NoExecutor": (NotImplementedError,),
    "PluginError": (RuntimeError,),
    "TraceError": (RuntimeError,),
    "InternalError": (RuntimeError,),
}
USER_ERRORS = [name for name in list(BUILTIN_BASES)[:13]]


@pytest.mark.parametrize("name", BUILTIN_BASES)
def test_class_derives_from_thunder_error_and_the_builtin_that_python_would_raise(name: str) -> None:
    cls = getattr(errors, name)
    assert issubclass(cls, errors.ThunderError)
    assert all(issubclass(cls, base) for base in BUILTIN_BASES[name])
    assert issubclass(cls, errors.UserError) == (name in USER_ERRORS)


def test_every_class_of_the_module_is_in_all_and_the_other_way_round() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined == {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}


def test_message_has_the_four_parts_in_order() -> None:
    error = errors.UnsupportedProgram(
        "torch.linalg.qr is not an operator thunder knows",
        found={"x": '"cpu f32[64, 64]"'},
        where=[Location("model.py", 41, "q, r = torch.linalg.qr(x)")],
        hint="Register it.",
    )
    assert str(error) == (
        "torch.linalg.qr is not an operator thunder knows\n"
        "  at  model.py:41   q, r = torch.linalg.qr(x)\n"
        '  x:  "cpu f32[64, 64]"\n'
        "Register it."
    )
    assert error.facts == {"x": '"cpu f32[64, 64]"'}


def test_message_without_the_optional_parts_is_one_line() -> None:
    assert str(errors.TraceError("t0 is used before it is defined")) == "t0 is used before it is defined"


def test_where_is_filled_in_once() -> None:
    error = errors.OperatorError("shapes do not fit")
    assert error.where == []
    assert error.add_locations([Location("a.py", 1, "f(x)")]) is error
    error.add_locations([Location("outer.py", 9, "g(x)")])
    assert error.where == [("a.py", 1, "f(x)")]
    assert str(error) == "shapes do not fit\n  at  a.py:1   f(x)"


def test_location_of_reads_the_source_line() -> None:
    here = Location.of(__file__, 1)
    assert here.text == '"""Errors: classes, message layout, suggestions."""'
    assert str(Location.of("<nowhere>", 3)) == "<nowhere>:3"


def test_internal_error_asks_for_a_report() -> None:
    assert "Please report it" in str(errors.InternalError("a proxy has no name"))


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("no", found={"expected": "int"}, hint="give one", facts={"position": 2}),
        errors.RegistrationError("no", where=[Location("a.py", 1, "x")]),
        errors.PluginNotInstalledError("no", distribution="thunder-x", hint="pip"),
    ],
)
def test_error_survives_pickling_with_its_parts(error: errors.ThunderError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert (again.where, again.facts, again.hint) == (error.where, error.facts, error.hint)


def test_not_installed_error_is_named_after_the_distribution_not_the_module() -> None:
    error = errors.PluginNotInstalledError("'thunder.x' is not installed", distribution="thunder-x")
    assert error.name == "thunder-x"


def test_nearest_name_does_not_depend_on_the_order_of_candidates() -> None:
    assert nearest("nvfuzer", ["torch", "nvfuser"]) == nearest("nvfuzer", ["nvfuser", "torch"]) == "nvfuser"
    assert nearest("qqq", ["torch", "nvfuser"]) is None
    assert did_you_mean("cache_mode", ["cache", "cse"]) == " Did you mean 'cache'?"
    assert did_you_mean("qqq", ["cache"]) == ""


def test_guard_failed_says_fact_expected_and_found() -> None:
    error = errors.GuardFailed("len(xs)", 2, 3)
    assert str(error) == "len(xs): expected 2, found 3"
    assert not isinstance(error, errors.ThunderError)


def test_warnings_are_user_warnings() -> None:
    assert issubclass(errors.SharpEdgeWarning, errors.ThunderWarning)
    assert issubclass(errors.RecompileWarning, errors.ThunderWarning)
    assert issubclass(errors.ThunderWarning, UserWarning)


def test_a_name_that_shares_half_of_its_letters_is_not_suggested() -> None:
    assert did_you_mean("nope", ["core", "node_of"]) == ""
    assert did_you_mean("pluggins", ["core", "plugins"]) == " Did you mean 'plugins'?"
    with pytest.raises(AttributeError, match=r"no installed plugin provides 'thunder\.sumo'") as raised:
        thunder.sumo  # noqa: B018
    assert "Did you mean" not in str(raised.value)
    with pytest.raises(AttributeError, match="Did you mean 'plugins'"):
        thunder.pluggins  # noqa: B018

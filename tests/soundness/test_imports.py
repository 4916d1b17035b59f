"""Imports within a program while ``sys.modules`` changes between calls."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types

import pytest
import torch

import thunder
from soundness.calls_in_contexts import check_calls_in, patched, situation
from soundness.harness import ramp


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


def loaded(**modules):
    """The situation in which these modules are in ``sys.modules``; ``a__b`` stands for ``a.b``."""
    return situation(*((sys.modules, name.replace("__", "."), m) for name, m in modules.items()))


ONE, TWO, WITHOUT = module("made", k=2.0), module("made", k=3.0), module("made", j=1.0)
MODULES = [
    loaded(made=ONE),
    loaded(made=TWO),
    loaded(made=WITHOUT),
    contextlib.nullcontext,
    loaded(made=None),
]

SUB, OTHER_SUB = module("made_package.sub", k=2.0), module("made_package.sub", k=5.0)
PACKAGE = module("made_package", __path__=[], sub=SUB)
OTHER = module("made_package", __path__=[], sub=OTHER_SUB)
BARE = module("made_package", __path__=[])
PACKAGES = [
    loaded(made_package=PACKAGE, made_package__sub=SUB),
    loaded(made_package=PACKAGE, made_package__sub=OTHER_SUB),
    loaded(made_package=OTHER, made_package__sub=OTHER_SUB),
    loaded(made_package=BARE, made_package__sub=OTHER_SUB),
    loaded(made_package=BARE),
    contextlib.nullcontext,
    loaded(made_package=OTHER, made_package__sub=None),
]


def import_name(x):
    import made

    return x * made.k


def import_from(x):
    from made import k

    return x * k


def import_if_there(x):
    try:
        import made
    except ImportError:
        return x - 1
    return x * made.k


def import_member_if_there(x):
    try:
        from made import k
    except ImportError:
        k = 100.0
    return x * k


def import_in_a_branch(x):
    if x.shape[0] == 3:
        import made as other

        return x * other.k
    return x


def import_by_importlib(x):
    return x * importlib.import_module("made").k


def import_by_builtin(x):
    return x * __import__("made").k


def import_dotted(x):
    import made_package.sub

    return x * made_package.sub.k


def import_dotted_as(x):
    import made_package.sub as other

    return x * other.k


def import_submodule(x):
    from made_package import sub

    return x * sub.k


def import_from_submodule(x):
    from made_package.sub import k

    return x * k


def import_dotted_if_there(x):
    try:
        import made_package.sub
    except ImportError:
        return x - 1
    return x * made_package.sub.k


def import_relative_by_importlib(x):
    return x * importlib.import_module(".sub", "made_package").k


_RELATIVE = """
def import_relative(x):
    from . import sub
    return x * sub.k

def import_from_relative(x):
    from .sub import k
    return x * k
"""
_inside: dict = {"__package__": "made_package", "__name__": "made_package.other"}
exec(_RELATIVE, _inside)

FORMS = [
    import_name,
    import_from,
    import_if_there,
    import_member_if_there,
    import_in_a_branch,
    import_by_importlib,
    import_by_builtin,
]
DOTTED_FORMS = [
    import_dotted,
    import_dotted_as,
    import_submodule,
    import_from_submodule,
    import_dotted_if_there,
    import_relative_by_importlib,
    _inside["import_relative"],
    _inside["import_from_relative"],
]


@pytest.mark.parametrize("order", [(0, 0, 1, 1, 0, 2, 3, 4, 0, 3, 4, 0), (3, 3, 0, 3, 4, 4, 2, 1)])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_another_module_under_the_name_is_noticed(form, order):
    check_calls_in(form, [ramp(3)], MODULES, order)


@pytest.mark.parametrize("order", [(0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 4, 3), (5, 5, 6, 4, 3, 2, 1, 0)])
@pytest.mark.parametrize("form", DOTTED_FORMS, ids=lambda f: f.__name__)
def test_another_submodule_under_the_name_is_noticed(form, order):
    check_calls_in(form, [ramp(3)], PACKAGES, order)


def test_a_changed_attribute_of_an_imported_module_is_noticed():
    def program(x):
        import made

        return x * made.k

    changing = module("made", k=2.0)
    with patched(sys.modules, "made", changing):
        compiled = thunder.jit(program)
        for value in (2.0, 5.0, 2.0):
            changing.k = value
            assert torch.equal(compiled(ramp(3)), ramp(3) * value)


def test_a_module_that_appears_as_a_file_is_noticed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def program(x):
        try:
            import appears_later
        except ImportError:
            return x - 1
        return x * appears_later.k

    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(ramp(3)), ramp(3) - 1)
    assert thunder.cache_hits(compiled) == 1
    (tmp_path / "appears_later.py").write_text("k = 4.0\n")
    importlib.invalidate_caches()
    try:
        assert torch.equal(compiled(ramp(3)), ramp(3) * 4.0)
    finally:
        sys.modules.pop("appears_later", None)


def test_a_module_whose_code_fails_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fails_to_load.py").write_text("import nothing_of_this_name\n")

    def program(x):
        try:
            import fails_to_load  # noqa: F401
        except ImportError:
            return x - 1

    with pytest.raises(thunder.UnsupportedProgram, match="fails_to_load"):
        thunder.jit(program)(ramp(3))


def test_a_replaced_import_function_is_refused():
    import builtins

    original = builtins.__import__
    with (
        patched(builtins, "__import__", lambda *args, **kwargs: original(*args, **kwargs)),
        pytest.raises(thunder.UnsupportedProgram, match="__import__"),
    ):
        thunder.jit(import_dotted_if_there)(ramp(3))


def test_the_getattr_of_a_module_is_not_called_to_name_it(monkeypatch):
    calls = []
    module = types.ModuleType("lazy_module")
    module.__getattr__ = calls.append
    module.factor = 2.0
    monkeypatch.setitem(sys.modules, "lazy_module", module)

    def program(x):
        import lazy_module

        return x * lazy_module.factor

    assert torch.equal(thunder.jit(program)(torch.ones(2)), torch.full((2,), 2.0))
    assert calls == []

"""Documented paths of packages that are not installed say what to install."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess

import pytest

from new_processes import run_python
from thunder.base.errors import PluginNotInstalledError
from thunder.plugins.finders import NotInstalledFinder, missing_attribute
from thunder.plugins.not_installed import DOCUMENTED, FIRST_PARTY, Provider

# In a process of its own: the finders are for the whole process, and installed façades would already be
# imported.
PROGRAM = """
import importlib.util
from thunder.plugins import finders, not_installed
not_installed.DOCUMENTED["thunder.absent"] = not_installed.Provider("absent things")
finders.install_finders()
finders.install_finders()
import sys
assert [f.__name__ for f in sys.meta_path if "thunder.plugins" in getattr(f, "__module__", "")] == [
    "NotInstalledFinder", "NotFoundFinder"]
import thunder
{statement}
"""


def run(statement: str) -> subprocess.CompletedProcess[str]:
    """A statement in a process where `thunder.absent` is documented and not installed."""
    return run_python("-c", PROGRAM.format(statement=statement))


@pytest.mark.parametrize(
    "statement",
    ["import thunder.absent", "from thunder import absent", "from thunder.absent import thing"],
)
def test_import_of_a_documented_path_says_what_to_install(statement: str) -> None:
    done = run(statement)
    assert done.returncode == 1
    assert (
        "PluginNotInstalledError: no installed package provides 'thunder.absent'.\n"
        "Install a package that provides thunder.absent: absent things.\n"
    ) in done.stderr


def test_import_of_what_nobody_documents_lists_the_plugins() -> None:
    done = run("import thunder.nowhere")
    assert done.returncode == 1
    assert "ModuleNotFoundError: no installed plugin provides 'thunder.nowhere'" in done.stderr
    assert "Plugins are packages named thunder-<name>" in done.stderr


@pytest.mark.parametrize("statement", ["from thunder import nowhere", "from thunder.core import nowhere"])
def test_name_that_nobody_provides_says_so_in_a_from_import_too(statement: str) -> None:
    done = run(statement)
    assert "ModuleNotFoundError: no installed plugin provides 'thunder." in done.stderr
    assert "installed plugins:  torch, python" in done.stderr


def test_unknown_transform_lists_the_registered_ones() -> None:
    done = run(
        """
from thunder.plugins import TransformSpec, get_manager, hookimpl
class Toy:
    @hookimpl
    def thunder_transforms(self):
        return [TransformSpec("ToyTransform", "fractions:Fraction")]
get_manager().register(Toy(), "toy")
from thunder.transforms import ToyTransform
assert ToyTransform.__name__ == "Fraction"
import thunder
assert "ToyTransform" in dir(thunder.transforms)
from thunder.transforms import ToyTransfrom
"""
    )
    assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr
    assert (
        "no installed plugin provides 'thunder.transforms.ToyTransfrom'. Did you mean 'ToyTransform'?"
        in done.stderr
    )
    assert "registered transforms:  ToyTransform" in done.stderr


def test_a_from_import_that_asks_for_the_module_itself_gives_it() -> None:
    done = run("print(__import__('thunder.executors', fromlist=['_']).__name__)")
    assert done.stdout == "thunder.executors\n", done.stderr


def test_find_spec_answers_none() -> None:
    done = run("print([importlib.util.find_spec(n) for n in ('thunder.absent', 'thunder.nowhere')])")
    assert done.stdout == "[None, None]\n", done.stderr


def test_error_is_an_import_error_whose_name_is_not_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOCUMENTED, "thunder.absent", Provider("absent things"))
    with pytest.raises(PluginNotInstalledError) as caught:
        NotInstalledFinder.find_spec("thunder.absent")
    assert isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name == "a package that provides thunder.absent"


def test_other_modules_pass() -> None:
    assert NotInstalledFinder.find_spec("json") is None
    assert importlib.import_module("json").__name__ == "json"


def test_missing_attribute_is_an_attribute_error_with_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOCUMENTED, "thunder.absent", Provider("absent things"))
    with pytest.raises(
        AttributeError, match=r"^no installed package provides 'thunder\.absent'\.\nInstall a "
    ):
        missing_attribute("thunder", "absent")
    with pytest.raises(AttributeError, match=r"no installed plugin provides 'thunder\.nowhere'"):
        missing_attribute("thunder", "nowhere")


def test_message_names_the_command_that_installs_a_first_party_package() -> None:
    for path, (subject, distribution) in DOCUMENTED.items():
        with pytest.raises(PluginNotInstalledError) as caught:
            NotInstalledFinder.find_spec(path)
        action = f"pip install {distribution}, which" if distribution else "Install a package that"
        assert str(caught.value).endswith(f"{action} provides {path}: {subject}.")
        assert distribution is None or distribution in FIRST_PARTY

"""Versions of packages that do not fit each other: requirements (PEP 440, PEP 508), and the hooks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import thunder
from new_processes import run_python
from thunder.plugins.compatibility import api_misfit, package_misfit, requirement_fault
from thunder.plugins.not_installed import FIRST_PARTY

from .example_plugins import write_distribution

SOURCE = str(Path(thunder.__file__).parents[1])


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("thunder-core>=0.1,<0.2", "0.1.0", True),
        ("thunder-core<0.2,>=0.1", "0.2.0", False),
        ("thunder-core>=0.1,<0.2", "0.1.7.dev3", True),
        ("thunder_core (>=0.2)", "0.1.0", False),
        ("Thunder.Core[testing]>=0.2", "0.1.0", False),
        ("thunder-core~=0.1.2", "0.1.9", True),
        ("thunder-core~=0.1.2", "0.2.0", False),
        ("thunder-core~=0.1.2", "0.1.1", False),
        ("thunder-core==0.1.*", "0.1.5", True),
        ("thunder-core==0.1.*", "0.2.0", False),
        ("thunder-core==0.1", "0.1.0", True),
        ("thunder-core!=0.1.3", "0.1.3", False),
        ("thunder-core>0.1", "0.1.0", False),
        ("thunder-core<=0.1", "0.1.0", True),
        ("thunder-core", "0.1.0", True),
        ("torch>=9", "0.1.0", True),
        ("thunder-core>=9; python_version < '3'", "0.1.0", True),
        ("thunder-core>=9; python_version >= '3'", "0.1.0", False),
        ("thunder-core>=9; extra == 'gpu'", "0.1.0", True),
        ("thunder-core>=0.2", "0.2.0rc1", False),  # PEP 440: a candidate is older than its release
        ("thunder-core>=0.1,!=0.1.*", "0.1.0", False),
        ("thunder-core===0.1.0", "0.1.0", True),
        ("thunder-core>=0.1.0", "0.1.0+local", True),
        ("not a requirement at all", "0.1.0", True),
    ],
)
def test_requirement(requirement: str, version: str, met: bool) -> None:
    fault = requirement_fault([requirement], version)
    assert (fault is None) == met
    if fault is not None:
        assert f"thunder-core {version} is installed" in fault


# -- both directions: which of the two is to be upgraded


@pytest.mark.parametrize(
    ("requirement", "core", "remedy"),
    [
        ("thunder-core>=0.1,<0.2", "0.2.0", "pip install --upgrade thunder-acme"),
        ("thunder-core>=0.2,<0.3", "0.1.0", "pip install --upgrade 'thunder-core<0.3,>=0.2'"),
        ("thunder-core==0.2.*", "0.1.5", "pip install --upgrade 'thunder-core==0.2.*'"),
        ("thunder-core==0.1.*", "0.2.0", "pip install --upgrade thunder-acme"),
        ("thunder-core~=0.1.2", "0.1.1", "pip install --upgrade 'thunder-core~=0.1.2'"),
        ("thunder-core~=0.1.2", "0.2.0", "pip install --upgrade thunder-acme"),
        ("thunder-core>=0.1,!=0.1.3", "0.1.3", "pip install --upgrade thunder-acme"),
        ("Thunder_Transforms>=0.2", "0.1.0", "pip install --upgrade 'thunder-transforms>=0.2'"),
        ("thunder-transforms<0.2", "0.2.0", "pip install --upgrade thunder-acme"),
    ],
)
def test_the_older_of_two_packages_is_to_be_upgraded(requirement: str, core: str, remedy: str) -> None:
    misfit = package_misfit("thunder-acme", ["torch>=9", requirement], lambda name: core)
    assert misfit is not None
    assert misfit.reason.endswith(f"{core} is installed")
    assert misfit.remedy == f"Upgrade with: {remedy}"


def test_a_package_that_is_not_installed_is_left_to_its_import() -> None:
    assert package_misfit("thunder-acme", ["thunder-other>=9"], lambda name: None) is None


def test_what_is_no_package_of_thunder_is_left_to_installers() -> None:
    assert package_misfit("thunder-acme", ["torch>=99", "numpy>=99"], lambda name: "1.0") is None


@pytest.mark.parametrize(
    ("api", "upgraded"), [((0, 9), "thunder-acme"), ((1, 99), "thunder-core"), ((2, 0), "thunder-core")]
)
def test_the_older_of_two_hook_versions_is_to_be_upgraded(api: tuple[int, int], upgraded: str) -> None:
    misfit = api_misfit(SimpleNamespace(THUNDER_PLUGIN_API=api), "thunder-acme")
    assert misfit is not None
    assert misfit.remedy == f"Upgrade with: pip install --upgrade {upgraded}"


# -- in environments that pip leaves behind; each in a new process

PACKAGE = """
from thunder.plugins import hookimpl
print("imported")
"""


def _run(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THUNDER_")}
    ours = {"PYTHONPATH": os.pathsep.join([str(site), SOURCE])}
    return run_python(*arguments, env=kept | ours | {"THUNDER_PLUGINS": "acme,other"} | environment)


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Path]:
    def make(**requirements: str) -> Path:
        for name, requirement in requirements.items():
            write_distribution(tmp_path, name, PACKAGE, requires=[requirement])
        return tmp_path

    return make


OLD, NEW = "thunder-core<0.1", "thunder-core>=99"


@pytest.mark.parametrize(
    ("requirement", "upgraded"), [(OLD, "thunder-acme"), (NEW, "'thunder-core>=99'")], ids=["old", "new"]
)
def test_a_plugin_that_does_not_fit_is_not_imported_and_says_what_to_upgrade(
    site: Callable[..., Path], requirement: str, upgraded: str
) -> None:
    done = _run(site(acme=requirement), "-c", "import thunder; print(thunder.get_default_executors())")
    assert (done.returncode, done.stdout) == (0, "()\n"), done.stderr
    assert f"requires {requirement}, and thunder-core {thunder.__version__} is installed" in done.stderr
    assert f"Upgrade with: pip install --upgrade {upgraded}, or silence this" in done.stderr
    strict = _run(site(), "-c", "import thunder; thunder.get_default_executors()", THUNDER_PLUGIN_STRICT="1")
    assert strict.returncode == 1
    assert "PluginError: thunder plugin 'acme' (from thunder-acme 0.3.1, thunder_acme)" in strict.stderr


@pytest.mark.parametrize(
    ("requirement", "upgraded"), [(OLD, "thunder-acme"), (NEW, "'thunder-core>=99'")], ids=["old", "new"]
)
def test_an_import_of_a_package_that_does_not_fit_says_what_to_upgrade(
    site: Callable[..., Path], requirement: str, upgraded: str
) -> None:
    done = _run(site(acme=requirement), "-c", "import thunder, thunder_acme")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"IncompatiblePackage: thunder-acme 0.3.1 requires {requirement}, and thunder-core "
        f"{thunder.__version__} is installed.\nUpgrade with: pip install --upgrade {upgraded}.\n"
    ) in done.stderr
    asked = "import thunder, importlib.util as u; print(u.find_spec('thunder_acme') is not None)"
    assert _run(site(), "-c", asked).stdout == "True\n"


def test_a_documented_path_of_a_package_that_does_not_fit_says_so(
    site: Callable[..., Path], tmp_path: Path
) -> None:
    facade = tmp_path / "thunder" / "absent"
    facade.mkdir(parents=True)
    (facade / "__init__.py").write_text("print('imported')\n", encoding="utf-8")
    program = """
from thunder.plugins import not_installed
not_installed.DOCUMENTED["thunder.absent"] = not_installed.Provider("absent things", "thunder-acme")
import thunder.absent
"""
    done = _run(site(acme=NEW), "-c", program)
    assert (done.returncode, done.stdout) == (1, "")
    assert "IncompatiblePackage: thunder-acme 0.3.1 requires thunder-core>=99" in done.stderr


def test_a_plugin_that_does_not_fit_another_plugin_is_disabled(site: Callable[..., Path]) -> None:
    folder = site(acme="thunder-other>=0.4", other="thunder-core>=0.1,<0.2")
    done = _run(folder, "-c", "import thunder; thunder.get_default_executors()")
    assert done.stdout == "imported\n"
    assert "requires thunder-other>=0.4, and thunder-other 0.3.1 is installed" in done.stderr
    assert "pip install --upgrade 'thunder-other>=0.4'" in done.stderr


def test_a_package_that_fits_is_imported(site: Callable[..., Path]) -> None:
    done = _run(site(acme="thunder-core>=0.1,<0.2"), "-c", "import thunder, thunder_acme")
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\n", "")


def test_doctor_finds_both_directions(site: Callable[..., Path]) -> None:
    done = _run(site(acme=OLD, other=NEW), "-m", "thunder", "doctor")
    assert done.returncode == 1
    assert "requires thunder-core<0.1, and" in done.stdout
    assert "Upgrade with: pip install --upgrade thunder-acme" in done.stdout
    assert "Upgrade with: pip install --upgrade 'thunder-core>=99'" in done.stdout
    assert done.stdout.endswith("Broken: thunder-acme, thunder-other, acme, other.\n")


def test_every_package_of_the_workspace_is_known_as_first_party() -> None:
    packages = {path.name for path in Path(SOURCE).parents[1].glob("thunder-*") if path.is_dir()}
    assert packages - {"thunder-core"} <= FIRST_PARTY

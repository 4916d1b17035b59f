"""Installed distributions, environment variables, laziness, the command line; each in a new process."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import thunder.plugins
import workspace_plugins
from new_processes import run_python

from .example_plugins import write_distribution

SOURCE = str(Path(thunder.plugins.__file__).parents[2])

ACME = """
    from thunder.plugins import ExecutorSpec, hookimpl

    @hookimpl
    def thunder_executors():
        return [ExecutorSpec("acme", "acme_kernels:ex", default=True)]
"""
BROKEN = "import libdoesnotexist"
OLD = "raise SystemExit('an incompatible plugin was imported')"

KERNELS = """
from thunder.extend import OperatorExecutor
ex = OperatorExecutor("acme")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with three installed plugins: one that works, one that cannot be imported, one for an older
    core.
    """
    write_distribution(tmp_path, "acme", ACME)
    write_distribution(tmp_path, "broken", BROKEN)
    write_distribution(tmp_path, "old", OLD, requires=["thunder-core<0.1"])
    (tmp_path / "acme_kernels.py").write_text(KERNELS, encoding="utf-8")
    return tmp_path


def run(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with `site` and thunder on its path, without the plugins of the development environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THUNDER_")}
    path = os.pathsep.join([str(site), SOURCE])
    ours = {"PYTHONPATH": path, "THUNDER_DISABLE_PLUGINS": ",".join(workspace_plugins.NAMES)}
    return run_python(*arguments, env=kept | ours | environment)


LIST = f"""
import json, warnings
warnings.simplefilter("ignore")
import thunder.plugins
others = {workspace_plugins.NAMES!r}
plugins = [i for i in thunder.plugins.list_plugins() if i.name not in others]
found = {{i.name: i.state for i in plugins if i.state not in ("builtin", "runtime")}}
print(json.dumps(found))
"""


def states(site: Path, **environment: str) -> dict[str, str]:
    """Name → state of the installed plugins."""
    done = run(site, "-c", LIST, **environment)
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


def test_installed_plugins_are_found_and_the_faulty_ones_contained(site: Path) -> None:
    assert states(site) == {"acme": "loaded", "broken": "failed", "old": "incompatible"}


def test_variable_restricts_to_a_list(site: Path) -> None:
    assert states(site, THUNDER_PLUGINS="acme") == {"acme": "loaded", "broken": "disabled", "old": "disabled"}
    assert states(site, THUNDER_PLUGINS="")["acme"] == "disabled"


@pytest.mark.parametrize("name", ["broken", "thunder-broken", "Thunder_Broken"])
def test_variable_blocks_by_name_of_plugin_or_distribution(site: Path, name: str) -> None:
    assert states(site, THUNDER_DISABLE_PLUGINS=f" {name} , old") == {
        "acme": "loaded",
        "broken": "disabled",
        "old": "disabled",
    }


def test_variable_switches_discovery_off(site: Path) -> None:
    assert states(site, THUNDER_PLUGIN_AUTOLOAD="0") == {}


def test_variable_makes_faults_errors(site: Path) -> None:
    done = run(site, "-c", LIST, THUNDER_PLUGIN_STRICT="1")
    assert done.returncode == 1
    assert "PluginError: thunder plugin 'broken' (from thunder-broken 0.3.1, thunder_broken)" in done.stderr
    assert states(site, THUNDER_PLUGIN_STRICT="1", THUNDER_PLUGINS="acme")["acme"] == "loaded"


def test_blocked_plugin_is_not_imported(site: Path) -> None:
    program = """
import sys, warnings
warnings.simplefilter("ignore")
import thunder.plugins
thunder.plugins.list_plugins()
print("thunder_acme" in sys.modules)
"""
    assert run(site, "-c", program, THUNDER_DISABLE_PLUGINS="acme").stdout == "False\n"
    assert run(site, "-c", program).stdout == "True\n"


def test_each_step_imports_what_it_needs_and_no_more(site: Path) -> None:
    program = """
import sys, warnings
warnings.simplefilter("ignore")
def seen():
    return [name in sys.modules for name in ("thunder_acme", "acme_kernels")]
import thunder
import thunder.extend, thunder.plugins
steps = [seen()]
thunder.plugins.list_plugins()
steps.append(seen())
assert [ex.name for ex in thunder.extend.get_default_executors()] == ["acme"]
steps.append(seen())
print(steps)
"""
    done = run(site, "-c", program)
    assert done.stdout == "[[False, False], [True, False], [True, True]]\n", done.stderr


COST = """
import sys, thunder
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
loaded = len([i for i in thunder.plugins.list_plugins() if i.state == "loaded"])
defaults = len(thunder.get_default_executors())
sys.setprofile(None)
print(loaded, defaults, calls)
"""


def _calls_of_plugins(site: Path, count: int) -> int:
    """Return how many functions are called to find, load and resolve plugins."""
    site.mkdir()
    for i in range(count):
        write_distribution(site, f"many{i}", ACME.replace("acme", f"many{i}"))
        kernels = KERNELS.replace("acme", f"many{i}")
        (site / f"many{i}_kernels.py").write_text(kernels, encoding="utf-8")
    loaded, defaults, calls = run(site, "-c", COST).stdout.split()
    assert (loaded, defaults) == (str(count), str(count))
    return int(calls)


def test_an_installed_plugin_costs_few_calls(tmp_path: Path) -> None:
    few, more = (_calls_of_plugins(tmp_path / str(count), count) for count in (10, 30))
    assert (more - few) / 20 < 5000  # less than two milliseconds


def test_command_prints_a_table_and_fails_if_a_plugin_does(site: Path) -> None:
    done = run(site, "-W", "ignore", "-m", "thunder", "plugins")
    assert done.returncode == 1, done.stderr
    rows = {row.split()[0]: " ".join(row.split()) for row in re.split(r"\n(?=\S)", done.stdout)}
    assert rows["plugin"] == "plugin package state brings"
    assert rows["acme"] == "acme thunder-acme 0.3.1 loaded acme (rank 100)"
    assert "- ModuleNotFoundError: No module named 'libdoesnotexist'" in rows["broken"]
    assert "requires thunder-core<0.1" in rows["old"]
    good = run(site, "-m", "thunder", "plugins", THUNDER_PLUGINS="acme")
    assert good.returncode == 0, good.stderr


def test_command_prints_json(site: Path) -> None:
    done = run(site, "-m", "thunder", "plugins", "--json", THUNDER_PLUGINS="acme")
    assert done.returncode == 0, done.stderr
    found = {plugin["name"]: plugin for plugin in json.loads(done.stdout)}
    assert found["acme"]["state"] == "loaded"
    assert found["acme"]["executors"][0]["name"] == "acme"
    assert found["acme"]["executors"][0]["default"] is True
    assert found["broken"]["reason"] == "not among THUNDER_PLUGINS"

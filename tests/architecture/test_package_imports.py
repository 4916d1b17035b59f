"""Packages beside core use its public import paths alone."""

from __future__ import annotations

import pytest

from architecture.source import CORE, ROOT, imports, modules, modules_of_core
from architecture.test_public_paths import PUBLIC

PACKAGES = [path.parent for path in sorted((ROOT / "packages").glob("thunder-*/src")) if path != CORE]
#: public paths of core that are modules of rows, errors and objects, beside those of the table
ALSO_PUBLIC = frozenset({"thunder", "thunder.benchmarks", "thunder.examine"})


def private_imports(source):
    """Return the imports of modules of core that are not public paths."""
    own, core = modules(source), modules_of_core()
    return [
        str(record)
        for module in own.values()
        for record in imports(module, {**core, **own})
        if record.target in core and record.target not in PUBLIC and record.target not in ALSO_PUBLIC
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_imports_public_paths_of_core_alone(package):
    assert private_imports(package / "src") == []


def test_an_import_of_a_private_module_is_found(tmp_path):
    (tmp_path / "module.py").write_text("from thunder.wrappers.overrides import member\n")
    assert private_imports(tmp_path) == ["module:1 imports thunder.wrappers.overrides"]

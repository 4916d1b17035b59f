"""The package thunder-transforms: its plugin, its import paths, its README."""

from __future__ import annotations

import importlib

import thunder.transforms
import thunder_migration
from documents.blocks import comparable, run
from documents.test_documents import ROOT
from thunder.core.transform_common import Transform
from thunder.plugins import get_manager
from thunder.plugins.not_installed import DOCUMENTED
from thunder_transforms import TRANSFORMS

PACKAGE = ROOT / "packages" / "thunder-transforms"
FACADES = PACKAGE / "src" / "thunder" / "transforms"


def test_every_transform_is_found_by_its_name():
    for name, module in TRANSFORMS.items():
        found = getattr(thunder.transforms, name)
        assert issubclass(found, Transform)
        assert found is getattr(importlib.import_module(module), name)
        assert name in dir(thunder.transforms)


def test_paths_of_lightning_thunder_lead_to_the_transforms():
    with get_manager().temporary(thunder_migration, name="migration-here"):
        for path, name in (("cpu_offloading", "CPUOffloading"), ("qlora", "LORATransform")):
            module = importlib.import_module(f"thunder.transforms.{path}")
            assert getattr(module, name) is getattr(thunder.transforms, name)
        profile = importlib.import_module("thunder.dev_utils.nvtx_profile_transform")
        assert profile.NvtxProfileTransform is thunder.transforms.NvtxProfileTransform


def test_facades_are_documented_typed_folders_that_export_names_of_the_package():
    for init in FACADES.glob("*/__init__.py"):
        path = f"thunder.transforms.{init.parent.name}"
        facade = importlib.import_module(path)
        assert path in DOCUMENTED
        assert (init.parent / "py.typed").exists()
        assert facade.__all__
        assert all(
            getattr(facade, name).__module__.startswith("thunder_transforms") for name in facade.__all__
        )
    assert not [path for path in FACADES.glob("*.py")], "files on a level that several packages share"


def test_the_examples_print_what_the_readme_shows():
    for example, printed in run(PACKAGE / "README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)

"""The checks of a release find what they are for, on packages that have it."""

from __future__ import annotations

import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tools.release import contents
from tools.release.builds import (
    OTHERWISE,
    ROOT,
    Built,
    build,
    differences,
    other_tree,
    packages,
    source_date,
    unpacked,
)
from tools.release.findings import Findings
from tools.release.installations import readme_lines, torch_requirement
from tools.release.local_index import serve

PACKAGE = "thunder-store"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(packages()[PACKAGE], tmp_path_factory.mktemp("first"), source_date())


def test_packages_are_read_from_the_workspace() -> None:
    assert next(iter(packages())) == "thunder-core"
    assert {folder.name for folder in packages().values()} == set(packages())


def test_a_package_built_elsewhere_and_from_its_source_distribution_has_the_same_bytes(
    built: Built, tmp_path: Path
) -> None:
    again = build(other_tree(ROOT, tmp_path)[PACKAGE], tmp_path / "again", source_date(), OTHERWISE)
    assert [*differences(built.wheel, again.wheel), *differences(built.sdist, again.sdist)] == []
    source = unpacked(built.sdist, tmp_path / "source")
    assert differences(built.wheel, build(source, tmp_path / "third", source_date()).wheel) == []


def test_another_date_is_a_difference_that_names_the_members(built: Built, tmp_path: Path) -> None:
    other = build(packages()[PACKAGE], tmp_path, "1000000000")
    assert f"{built.wheel.name}: thunder_store/__init__.py differs" in differences(built.wheel, other.wheel)
    assert any("PKG-INFO differs" in line for line in differences(built.sdist, other.sdist))


def test_a_package_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    (tmp_path / "thunder-broken").mkdir()
    (tmp_path / "thunder-broken" / "pyproject.toml").write_text("[project]\nname = 'thunder-broken'\n")
    with pytest.raises(RuntimeError, match="thunder-broken cannot be built"):
        build(tmp_path / "thunder-broken", tmp_path / "to", "1000000000")


def _changed(wheel: Path, to: Path, changes: dict[str, str | None]) -> contents.Wheel:
    """Return the wheel with other texts of some members, or without them."""
    copy = to / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w") as new:
        for name in [*old.namelist(), *(name for name in changes if name not in old.namelist())]:
            text = changes.get(
                name.partition(".dist-info/")[2] or name, old.read(name) if name in old.namelist() else ""
            )
            if text is not None:
                new.writestr(name, text)
    return contents.Wheel(copy)


def test_the_built_package_has_no_faults(built: Built) -> None:
    wheel = contents.Wheel(built.wheel)
    assert [*contents.described(wheel, built), *contents.files(wheel, built)] == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("License-Expression: Apache-2.0", "License-Expression: MIT", "the licence is 'MIT'"),
        ("Requires-Python: >=3.11", "Requires-Python: >=3.10", "CPython 3.10 is not supported"),
        ("Requires-Python: >=3.11", "Requires-Python: >=3.12", "a classifier names CPython 3.11"),
        (
            "Classifier: Typing :: Typed",
            "Classifier: Typing :: Typing",
            "unknown classifier 'Typing :: Typing'",
        ),
        ("Name: thunder-store", "Name: thunder-shop", "the name is thunder-shop"),
    ],
)
def test_metadata_that_are_wrong_are_named(
    built: Built, tmp_path: Path, old: str, new: str, fault: str
) -> None:
    text = contents.Wheel(built.wheel).text("METADATA").decode()
    assert old in text
    wheel = _changed(built.wheel, tmp_path, {"METADATA": text.replace(old, new)})
    assert any(fault in line for line in contents.described(wheel, built))


def test_metadata_that_are_not_valid_are_an_error(built: Built, tmp_path: Path) -> None:
    text = (
        contents.Wheel(built.wheel)
        .text("METADATA")
        .decode()
        .replace("Requires-Python: >=", "Requires-Python: =>")
    )
    with pytest.raises(ExceptionGroup, match="invalid"):
        _changed(built.wheel, tmp_path, {"METADATA": text})


def test_a_missing_marker_of_types_and_files_of_others_are_named(built: Built, tmp_path: Path) -> None:
    changes = {"thunder_store/py.typed": None, "thunder_other/__init__.py": "", "thunder_store/x.pyc": ""}
    wheel = _changed(built.wheel, tmp_path, changes)
    assert "thunder_store has no py.typed" in list(contents.described(wheel, built))
    faults = list(contents.files(wheel, built))
    assert "thunder_other/__init__.py is outside of thunder/ and thunder_store/" in faults
    assert "thunder_store/x.pyc does not belong into a wheel" in faults
    assert "the source distribution lacks src/thunder_other/__init__.py" in faults


def test_a_link_in_a_source_distribution_is_named(built: Built, tmp_path: Path) -> None:
    sdist = tmp_path / built.sdist.name
    with tarfile.open(sdist, "w:gz") as archive:
        link = tarfile.TarInfo("thunder_store-0.1.0/LICENSE")
        link.type, link.linkname = tarfile.SYMTYPE, "../../LICENSE"
        archive.addfile(link)
    faults = list(contents.files(contents.Wheel(built.wheel), Built(built.wheel, sdist)))
    assert "the source distribution has a link, thunder_store-0.1.0/LICENSE" in faults


def test_a_file_of_two_packages_is_named(built: Built) -> None:
    wheel = contents.Wheel(built.wheel)
    assert "thunder_store/__init__.py is in one and in two" in list(
        contents.overlaps({"one": wheel, "two": wheel})
    )
    assert list(contents.overlaps({"one": wheel})) == []


@pytest.mark.parametrize(
    ("requirement", "fault"),
    [
        ("thunder-core>=0.1,<0.2", None),
        ("thunder-core~=0.1.0", None),
        ("thunder-core>=0.2,<0.3", "does not admit 0.1.0"),
        ("thunder-core>=0.1", "admits 0.2, whose inside may differ"),
        ("thunder-core<0.2", "has no lower bound"),
    ],
)
def test_ranges_between_packages(requirement: str, fault: str | None) -> None:
    faults = list(contents.requirement_faults(Requirement(requirement), Version("0.1.0")))
    assert faults == [] if fault is None else any(fault in line for line in faults)


def test_lines_of_a_page_that_install_packages() -> None:
    page = """
```
pip install thunder-core thunder-x   # both
pip install torch
python -m pip install thunder-core
```
pip install thunder-core
```sh
pip install "thunder-x[all]>=1"
```
"""
    assert readme_lines(page, ["thunder-core", "thunder-x"]) == [
        ["thunder-core", "thunder-x"],
        ["thunder-x[all]>=1"],
    ]


def test_the_readme_has_lines_that_install() -> None:
    assert len(readme_lines((ROOT / "README.md").read_text(encoding="utf-8"), packages())) >= 2


def test_the_torch_of_all_environments_is_the_pinned_one() -> None:
    assert torch_requirement().startswith("torch==")


def test_the_index_has_our_files_and_refers_to_the_usual_one_for_others(built: Built) -> None:
    with serve({PACKAGE: [built.wheel]}, "http://127.0.0.1:9/other") as index:
        page = urllib.request.urlopen(f"{index}/{PACKAGE}/").read().decode()
        assert f'href="/files/{built.wheel.name}"' in page
        address = index.removesuffix("/simple")
        assert (
            urllib.request.urlopen(f"{address}/files/{built.wheel.name}").read() == built.wheel.read_bytes()
        )
        with pytest.raises(OSError, match="refused") as caught:
            urllib.request.urlopen(f"{index}/torch/")
        assert caught.type is not urllib.error.HTTPError


def test_a_fault_is_printed_and_fails_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    findings = Findings()
    findings.add("thunder-a", "metadata")
    findings.add("thunder-b", "metadata", ["no summary"])
    findings.add("thunder-b", "doctor")
    assert [row.package for row in findings.failed] == ["thunder-b"]
    assert "no summary" in capsys.readouterr().err
    assert findings.table().splitlines() == [
        "package    metadata  doctor",
        "thunder-a  ok",
        "thunder-b  FAILED    ok",
    ]

"""`python -m thunder new-executor NAME`: what it writes, and what it refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import thunder.__main__
from thunder.authoring import NewPackage, new_executor
from thunder.core.errors import InvalidArgument


def test_the_package_has_a_file_for_each_subject(generated: Path) -> None:
    files = sorted(path.relative_to(generated).as_posix() for path in generated.rglob("*") if path.is_file())
    assert files == [
        "README.md",
        "pyproject.toml",
        "src/thunder_acme_fast/__init__.py",
        "src/thunder_acme_fast/executor.py",
        "src/thunder_acme_fast/kernels.py",
        "src/thunder_acme_fast/py.typed",
        "tests/test_acme_fast.py",
    ]


def test_no_placeholder_is_left(generated: Path) -> None:
    left = [
        path for path in generated.rglob("*.*") if path.is_file() and "$" in path.read_text(encoding="utf-8")
    ]
    assert left == []


def test_the_entry_point_leads_to_the_plugin(generated: Path) -> None:
    project = tomllib.loads((generated / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "thunder-acme-fast"
    assert project["entry-points"]["thunder.plugins"] == {"acme_fast": "thunder_acme_fast"}


def test_the_package_requires_the_core_that_wrote_it(generated: Path) -> None:
    project = tomllib.loads((generated / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor = map(int, thunder.__version__.split(".")[:2])
    assert f"thunder-core>={major}.{minor},<{major}.{minor + 1}" in project["dependencies"]


@pytest.mark.parametrize("path", ["src/thunder_acme_fast/executor.py", "tests/test_acme_fast.py"])
def test_what_it_writes_is_python_with_short_lines(generated: Path, path: str) -> None:
    text = (generated / path).read_text(encoding="utf-8")
    compile(text, path, "exec")
    assert max(map(len, text.splitlines())) <= 120


def test_without_a_directory_it_is_named_like_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert thunder.__main__.main(["new-executor", "my_kernels"]) == 0
    assert (tmp_path / "thunder-my-kernels" / "pyproject.toml").exists()
    assert "cd thunder-my-kernels" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["my_kernels", "my-kernels", "My.Kernels", "thunder-my-kernels"])
def test_names_are_written_as_python_and_packages_write_them(tmp_path: Path, given: str) -> None:
    new_executor(given, tmp_path / "p")
    made = NewPackage("my_kernels")
    assert (tmp_path / "p" / "src" / made.package / "executor.py").exists()
    assert (made.package, made.distribution) == ("thunder_my_kernels", "thunder-my-kernels")


@pytest.mark.parametrize("name", ["3d", "", "class", "a/b", "größe"])
def test_a_name_that_cannot_be_pythons_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be named"):
        new_executor(name, tmp_path / "p")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("name", ["torch", "pytorch"])
def test_the_name_of_an_installed_executor_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="there is an executor"):
        new_executor(name, tmp_path / "p")


def test_a_directory_with_something_in_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    assert thunder.__main__.main(["new-executor", "acme", "--directory", str(tmp_path)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]

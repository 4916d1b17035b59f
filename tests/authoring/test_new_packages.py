"""`python -m thunder new-executor NAME` and `new-transform NAME`: what they write, and what they refuse."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import thunder.__main__
from thunder.authoring import NewPackage, new_executor, new_transform
from thunder.core.errors import InvalidArgument
from thunder.plugins import TransformSpec, get_manager, hookimpl

#: name → the modules of its package, beside the plugin
MODULES = {
    "acme-fast": ("executor", "kernels"),
    "acme-fusion": ("codegen", "executor"),
    "acme-int8": ("transform", "weights"),
}
every_package = pytest.mark.parametrize("name", MODULES)


def written(folder: Path) -> dict[str, str]:
    """Return the text of each file of a package, by its path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    paths = sorted(files)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@every_package
def test_the_package_has_a_file_for_each_subject(generated: dict[str, Path], name: str) -> None:
    plain = name.replace("-", "_")
    files = ["py.typed", *(f"{module}.py" for module in ("__init__", *MODULES[name]))]
    assert set(written(generated[name])) == {
        "README.md",
        "pyproject.toml",
        *(f"src/thunder_{plain}/{file}" for file in files),
        f"tests/test_{plain}.py",
    }


@every_package
def test_no_placeholder_is_left(generated: dict[str, Path], name: str) -> None:
    assert [path for path, text in written(generated[name]).items() if "$" in text] == []


@every_package
def test_the_entry_point_leads_to_the_plugin(generated: dict[str, Path], name: str) -> None:
    plain = name.replace("-", "_")
    project = tomllib.loads(written(generated[name])["pyproject.toml"])["project"]
    assert project["name"] == f"thunder-{name}"
    assert project["entry-points"]["thunder.plugins"] == {plain: f"thunder_{plain}"}


@every_package
def test_the_package_requires_the_core_that_wrote_it(generated: dict[str, Path], name: str) -> None:
    project = tomllib.loads(written(generated[name])["pyproject.toml"])["project"]
    major, minor = map(int, thunder.__version__.split(".")[:2])
    assert f"thunder-core>={major}.{minor},<{major}.{minor + 1}" in project["dependencies"]


@every_package
def test_what_it_writes_is_python_with_short_lines(generated: dict[str, Path], name: str) -> None:
    for path, text in written(generated[name]).items():
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert max(map(len, text.splitlines())) <= 120, path


@every_package
def test_the_readme_names_each_file_and_ends_with_an_example(generated: dict[str, Path], name: str) -> None:
    text = written(generated[name])["README.md"]
    for path in written(generated[name]):
        assert path.endswith(("README.md", "pyproject.toml", "py.typed")) or f"`{path}`" in text
    assert text.index("## Try it") < text.index("## See what it does") < text.index("```python")


def test_without_a_directory_it_is_named_like_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("new-executor", "new-transform"):
        assert thunder.__main__.main([command, f"my_{command}"]) == 0
        assert (tmp_path / f"thunder-my-{command}" / "pyproject.toml").exists()
        assert f"cd thunder-my-{command}" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch", "an executor 'torch'"),
        ("pytorch", "an executor 'pytorch'"),
        ("rows", "a plugin 'rows'"),
        ("core", "a distribution 'thunder-core'"),
    ],
)
def test_the_name_of_what_is_installed_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with get_manager().temporary(SimpleNamespace(), name="rows"):
        for write in (new_executor, new_transform):
            with pytest.raises(InvalidArgument, match=f"there is {message} already"):
                write(name, tmp_path / "p")


class Declares:
    """A plugin with a transform."""

    @hookimpl
    def thunder_transforms(self) -> list[TransformSpec]:
        return [TransformSpec("LowRank", "acme:LowRank")]


def test_the_name_of_an_installed_transform_is_refused(tmp_path: Path) -> None:
    taken = pytest.raises(InvalidArgument, match="there is a transform 'LowRank' already")
    with get_manager().temporary(Declares(), name="acme"), taken:
        new_transform("low-rank", tmp_path / "p")


def test_a_directory_with_something_in_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    assert thunder.__main__.main(["new-executor", "acme", "--directory", str(tmp_path)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]

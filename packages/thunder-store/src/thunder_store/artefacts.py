"""Artefacts: the programs of a compiled object in one file, and back on a live function or module.

An artefact is a zip file of texts: `artefact.json` has settings, environment and the digest of each other
file, `programs/<n>.json` a program, `traces/<n>.<name>.py` the texts that run, as they run. Nothing in it is
executed but these texts, after :mod:`~thunder_store.run_text` has looked at each statement.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file

from thunder import Plan
from thunder.core.entries import (
    CacheEntry,
    CompileData,
    ThunderError,
    TraceRequest,
    compile_data,
    compile_stats,
    compiling,
    dispatcher_of,
    jit,
)
from thunder_store.alone import AloneProgram, read_alone, weights_of, write_weights
from thunder_store.entries import DAMAGE, read_entry, write_entry
from thunder_store.environment import (
    changed_content,
    contents_of_modules,
    environment,
    files_of_modules,
    refuse_newer_files,
)
from thunder_store.outcomes import note
from thunder_store.planned import (
    check_device,
    device_document,
    environment_of_plan,
    is_read_on_each,
    refuse_queries,
)
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.settings import given_settings, settings_of

__all__ = ["Artefact", "ArtefactError", "LoadedAlone", "load", "save"]

_FORMAT: Final = "thunder artefact 1"
_INDEX: Final = "artefact.json"
#: the most bytes of one text, and the most texts
_MOST_BYTES: Final = 1 << 30
_MOST_TEXTS: Final = 1 << 12


class ArtefactError(ThunderError):
    """A file is not an artefact, or it is damaged; or a compiled object has nothing to save."""


def save(compiled: Any, path: str | os.PathLike[str], *, weights: bool = False) -> list[str]:
    """Write the programs of a compiled object to one file, and return why others are not in it.

    With ``weights`` the tensors of the model that the programs read are written beside it, to a file of
    safetensors with the ending ``.safetensors``: then `load` needs no model. These are programs for
    inference, which compute no gradients and write to no object.

    Of a plan, the program is written that was planned for its device (docs/plans.md).

    Raises NotCompiled for another object, ArtefactError if no program can be kept, OSError.
    """
    if isinstance(compiled, Plan):
        return _save_plan(compiled, Path(path), weights)
    data, stats = compile_data(compiled), compile_stats(compiled)
    dispatcher = dispatcher_of(compiled)
    if data is None or stats is None or dispatcher is None:
        raise ArtefactError(f"{compiled!r} is not compiled", hint="Pass what thunder.jit returned.")
    programs, reasons = list[dict[str, Any]](), list[str]()
    tensors: dict[str, torch.Tensor] = {}
    for entry in stats.interpreter_cache:
        try:
            request, n = dispatcher.request(entry.plan), len(programs)
            program = {**write_entry(entry, request, data), "settings": settings_of(request, data)}
            text = json.dumps(program)
            refuse_newer_files({name: f for name, f in files_of_modules().items() if f'"{name}"' in text})
            own = weights_of(program, request.fn) if weights else {}
            tensors |= {f"{n} {name}": tensor for name, tensor in own.items()}
            programs.append(program)
        except NotKept as reason:
            reasons.append(str(reason))
    if not programs:
        raise ArtefactError(
            "no program of the compiled object can be kept",
            found={"reasons": "; ".join(reasons) or "it was not called yet"},
            hint="Call it first; docs/kept_programs.md says what is kept.",
        )
    if weights:
        write_weights(tensors, _weights_path(Path(path)))
    _write(Path(path), programs, {**given_settings(data), "has weights": weights})
    return reasons


def _save_plan(plan: Plan, path: Path, weights: bool) -> list[str]:
    if plan.origin is None or weights:
        why = "a plan has no values of weights" if weights else "it is a plan of a plugin, of another kind"
        raise ArtefactError(
            f"the plan cannot be saved: {why}", hint="Save what thunder.plan(fn, …) returned."
        )
    entry, compiler = plan.origin
    request, data = compiler.request(entry.plan), compiler.data
    try:
        # a call may ask questions about data; the program of a plan asks none, else it could not be planned
        asks = data.compile_options["data_dependent"] != "refuse"
        settings = {**settings_of(request, data), "answers": asks}
        program = {**write_entry(entry, request, data), "settings": settings}
        refuse_queries(program)
    except NotKept as reason:
        raise ArtefactError(
            "the plan cannot be saved",
            found={"reason": reason},
            hint="docs/kept_programs.md says what is kept.",
        ) from reason
    device = device_document(plan)
    _write(
        path,
        [program],
        {**given_settings(data), "has weights": False},
        {"device": device} if device else None,
    )
    return []


def _weights_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.safetensors")


def _write(
    path: Path,
    programs: list[dict[str, Any]],
    given: Mapping[str, Any],
    planned: Mapping[str, Any] | None = None,
) -> None:
    texts: dict[str, str] = {}
    for n, program in enumerate(programs):
        runs = {}
        for name, part in program["programs"].items():
            if isinstance(part, dict) and "text" in part:
                texts[f"traces/{n}.{name}.py"] = part["text"]
                part = {**part, "text": f"traces/{n}.{name}.py"}
            runs[name] = part
        texts[f"programs/{n}.json"] = json.dumps({**program, "programs": runs}, separators=(",", ":"))
    index = {
        "format": _FORMAT,
        "environment": environment() if planned is None else environment_of_plan(),
        "given": given,
        "programs": len(programs),
        "modules": _contents(texts.values(), is_planned=planned is not None),
        "planned": planned,
        "files": {name: _digest(text.encode("utf-8", "surrogatepass")) for name, text in texts.items()},
    }
    body = json.dumps(index, separators=(",", ":"), sort_keys=True)
    texts[_INDEX] = json.dumps({"digest": _digest(body.encode()), "index": body})
    with tempfile.TemporaryDirectory(dir=path.resolve().parent) as folder:
        whole = Path(folder) / "whole"
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
            for name, text in texts.items():
                file.writestr(zipfile.ZipInfo(name), text.encode("utf-8", "surrogatepass"))
        os.replace(whole, path)


def _contents(texts: Iterable[str], *, is_planned: bool) -> dict[str, str]:
    """Return the contents of modules; of the script that ran only if a program depends on what it defines."""
    depends = any("__main__" in text for text in texts)
    found = {
        n: c for n, c in contents_of_modules().items() if depends or n not in ("__main__", "__mp_main__")
    }
    if not is_planned:
        return found
    return {
        n: c for n, c in found.items() if is_read_on_each(n, str(getattr(sys.modules[n], "__file__", "")))
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Artefact:
    """The programs in a file; raises ArtefactError for a file that is not what `save` wrote."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            texts = _texts(self.path)
            outer = json.loads(texts[_INDEX])
            if _digest(outer["index"].encode()) != outer["digest"]:
                raise ValueError("its index is not what was written")
            index = json.loads(outer["index"])
            if index["format"] != _FORMAT:
                raise ValueError(f"its format is {index['format']!r}")
            for name, digest in index["files"].items():
                if _digest(texts[name].encode("utf-8", "surrogatepass")) != digest:
                    raise ValueError(f"{name} is not what was written")
            self.environment: dict[str, str] = dict(index["environment"])
            self.modules: dict[str, str] = dict(index["modules"])
            self.given: dict[str, Any] = dict(index["given"])
            #: of a plan: the device that it is for
            self.planned: dict[str, Any] | None = index["planned"]
            self.has_weights = bool(self.given.pop("has weights"))
            self.programs = [_program(n, texts) for n in range(index["programs"])]
        except OSError:
            raise
        except _DAMAGE as error:
            raise ArtefactError(
                f"{self.path} is not an artefact of thunder, or it is damaged", found={"error": repr(error)}
            ) from error

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return the program for a call, or None; what did not hold is among the events."""
        name = str(self.path)
        try:
            self.check_environment()
        except NotUsed as reason:
            note("not used", name, str(reason))
            return None
        for program in self.programs:
            try:
                if program["settings"] != json.loads(json.dumps(settings_of(request, data))):
                    raise NotUsed("the code of the callable, or a setting, is another one")
                entry = read_entry(program, request, data)
            except (NotUsed, NotKept) as reason:
                note("not used", name, str(reason))
                continue
            note("hit", name)
            return entry
        return None

    def check_environment(self) -> None:
        """Raise NotUsed if a version, a setting of the process, the device or a module is another one."""
        now = environment() if self.planned is None else environment_of_plan()
        for name, text in self.environment.items():
            if now.get(name) != text:
                raise NotUsed(f"{name} is {now.get(name)!r} and was {text!r}")
        if self.planned is not None:
            check_device(self.planned["device"])
        changed = changed_content(self.modules)
        if changed is not None:
            raise NotUsed(f"the content of the module {changed} is another one")


#: what reading a file of another form raises
_DAMAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(EOFError, NotImplementedError, RuntimeError, RecursionError, OverflowError),
)


def _texts(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        if len(members) > _MOST_TEXTS or any(m.file_size > _MOST_BYTES for m in members):
            raise ValueError("it has too many texts, or too long ones")
        return {m.filename: file.read(m).decode("utf-8", "surrogatepass") for m in members}


def _program(n: int, texts: Mapping[str, str]) -> dict[str, Any]:
    program: dict[str, Any] = json.loads(texts[f"programs/{n}.json"])
    for part in program["programs"].values():
        if isinstance(part, dict) and "text" in part:
            part["text"] = texts[part["text"]]
    return program


def load(path: str | os.PathLike[str], fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Return a compiled object of a function or module that uses the programs of an artefact.

    A program is used for a call if all that it depends on is as it was: settings, versions, the content of
    loaded modules, the code that was read, and each of its guards. Else the call is compiled; `events` says
    why. ``settings`` are those of `thunder.jit`, by default those with which the programs were compiled.

    Without ``fn`` it is a :class:`LoadedAlone`, which needs no model: the artefact has weights.

    Raises ArtefactError for a file that is not one that `save` wrote, or has no weights where they are
    needed, and what `thunder.jit` raises.
    """
    artefact = Artefact(path)
    if fn is None:
        return LoadedAlone(artefact)
    return jit(fn, **{**artefact.given, **settings, "artefact": artefact})


class LoadedAlone:
    """The programs of an artefact with their weights, for inference without the model."""

    def __init__(self, artefact: Artefact) -> None:
        if not artefact.has_weights:
            raise ArtefactError(
                f"{artefact.path} has no weights",
                hint="thunder.save(compiled, path, weights=True) writes them; or pass the model to load.",
            )
        self._artefact, self._weights = artefact, load_file(_weights_path(artefact.path))
        self._data = compile_data(jit(LoadedAlone.__call__, **artefact.given))
        self._programs: dict[int, AloneProgram] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model has computed for such arguments.

        Raises ArtefactError, with the reason of each program, for a call that none of them is for.
        """
        for program in self._programs.values():
            try:
                return program(args, kwargs)
            except NotUsed:
                continue
        return self._new_program(args, kwargs)(args, kwargs)

    def _new_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AloneProgram:
        reasons = []
        assert self._data is not None, "jit returns compiled objects"
        for n, document in enumerate(self._artefact.programs):
            if n in self._programs:
                continue
            weights = {k.partition(" ")[2]: w for k, w in self._weights.items() if k.startswith(f"{n} ")}
            try:
                self._artefact.check_environment()
                with compiling(self._data):
                    self._programs[n] = read_alone(document, weights, self._data, args, kwargs)
            except (NotUsed, *DAMAGE) as reason:
                reasons.append(str(reason))
                continue
            return self._programs[n]
        raise ArtefactError(
            f"no program of {self._artefact.path} is for the call",
            found={"reasons": "; ".join(reasons) or "the arguments are others"},
            hint="Save it after a call with such arguments, or load it with the model.",
        )

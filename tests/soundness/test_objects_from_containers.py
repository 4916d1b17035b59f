"""A slice of the programs in which objects come out of containers, and change later."""

from __future__ import annotations

import gc
import types

import pytest

import thunder
from soundness.objects_from_containers import KINDS, OF_CLASSES, WAYS, judge, programs
from sweeping import one_in
from thunder.frontend.tracing_policy import Tracer

#: one program in so many is run here; `python -m soundness.objects_from_containers` runs them all
PARTS = 60


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_from_a_container_is_guarded_and_written_as_any_other(kind):
    chosen = [choice for choice in programs() if choice[0] == kind]
    found = {choice: judge(thunder, choice) for choice in chosen[:: PARTS if len(chosen) > 1000 else 8]}
    assert len(found) > 10, "a slice has many programs"
    wrong = [f"{choice}: {text}" for choice, text in found.items() if text is not None]
    if kind == "tensor":  # which is refused as a key, by name
        wrong = [line for line in wrong if "has a key of type Tensor" not in line]
    assert not wrong, "\n".join(wrong)


#: what is guarded by itself wherever it comes from
BY_THEMSELVES = (type, types.FunctionType, types.ModuleType)


@pytest.fixture(scope="module")
def older_objects():
    """Return the objects that there are, by id; what is created later is in `gc.get_objects()`.

    They are kept alive: the id of an object that is freed becomes that of a new one.
    """
    gc.unfreeze()
    gc.collect()
    objects = {id(x): x for x in gc.get_objects()}
    gc.freeze()
    return objects


@pytest.mark.parametrize("way", one_in(2, WAYS))
def test_nothing_that_was_there_before_the_call_is_read_unseen(way, older_objects, monkeypatch):
    before: dict[int, object] = {}
    unseen = []
    read = Tracer.instance_attr

    def watched(self, obj, name):
        is_known = id(obj) in self.objects.entries or isinstance(obj, BY_THEMSELVES)
        if not is_known and (id(obj) in older_objects or id(obj) in before):
            unseen.append(f"{type(obj).__qualname__}.{name}")
        return read(self, obj, name)

    class Watching:
        """The compiler, which looks at what there is before it compiles."""

        @staticmethod
        def jit(fn, **options):
            before.update((id(x), x) for x in gc.get_objects())
            return thunder.jit(fn, **options)

    monkeypatch.setattr(Tracer, "instance_attr", watched)
    kind = "class" if way in OF_CLASSES else "instance"
    assert judge(Watching, (kind, way, "attribute", "nothing")) is None
    assert not unseen, unseen

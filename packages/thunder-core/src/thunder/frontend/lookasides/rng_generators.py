"""Generators of random numbers in the traced program.

The program sees the generators of its inputs, and placeholders for those that it creates; no number is drawn
from either while it is traced. In the trace a generator is a proxy: an input, whose state is that of the
object at each run and so is never stale, or the result of a statement. Draws, and reads and writes of a
state, are statements in the order of the program.

    def f(g):                                def computation(g):
        g.manual_seed(3)               →         torch.Generator.manual_seed(g, 3)
        return torch.rand(2, generator=g)        t0 = torch.rand((2,), dtype=None, device=None, generator=g)
                                                 return t0

The one part of a state that Python code can read is the seed with which it began. That of an input is a fact
until the program changes it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.devices import Device, to_device, to_torch_device
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path, lookup_type
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import DRAWS
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import GeneratorProxy
from thunder.ops import prims

TABLE = LookasideTable(DRAWS)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass
class GeneratorEntry:
    """A generator of the program: its path, its seed, and whether the program changed it.

    ``path`` is None if the program created the generator. ``seed`` is the one with which its state began,
    None if it is known only when the computation runs; ``changed`` is True once the program has changed the
    state.
    """

    obj: torch.Generator
    path: Path | None
    proxy: GeneratorProxy | None
    seed: int | None
    changed: bool = False

    def seeded(self, seed: int | None) -> None:
        """Note that the program has seeded the generator."""
        self.seed, self.changed = seed, True


class Generators(SessionState):
    """The generators of one acquisition."""

    def __init__(self, session: TracingSession) -> None:
        self.objects, self.assumed = session.objects, session.assumed_device
        self._entries: dict[int, GeneratorEntry] = {}
        #: whether the program has seeded the default generators of devices, to which it may have references
        self.devices_are_seeded = False

    def of(self, obj: torch.Generator) -> GeneratorEntry:
        """Return the entry of a generator. Raises UnsupportedProgram for one without a path."""
        generator = self._entries.get(id(obj))
        if generator is None:
            path = self.objects.path_of(obj)
            if path is None:
                raise UnsupportedProgram(
                    "the program uses a generator of random numbers that thunder has not seen before",
                    hint="Pass it as an argument, or keep it in an attribute or a variable.",
                )
            generator = self._entries[id(obj)] = GeneratorEntry(obj, path, None, obj.initial_seed())
        return generator

    def default(self) -> GeneratorEntry:
        """Return the entry of the default generator of the CPU."""
        path = self.objects.object_root(torch.default_generator, "torch.default_generator")
        return self.of(self.objects.adopt(torch.default_generator, path))

    def proxy(self, obj: torch.Generator) -> GeneratorProxy:
        """Return the proxy of a generator; one from outside becomes an input."""
        generator = self.of(obj)
        if generator.proxy is None:
            assert generator.path is not None, (
                "a generator that the program creates has a proxy from the beginning"
            )
            generator.proxy = self.objects.make_input(obj, generator.path)
        return generator.proxy

    def create(self, proxy: GeneratorProxy, seed: int | None) -> torch.Generator:
        """Return the placeholder for a generator that the program has created."""
        obj = torch.Generator()
        self._entries[id(obj)] = GeneratorEntry(obj, None, proxy, seed, changed=True)
        return obj

    def created_proxy(self, obj: object) -> GeneratorProxy | None:
        """Return the proxy of a generator that the program has created, else None."""
        generator = self._entries.get(id(obj))
        return generator.proxy if generator is not None and generator.path is None else None

    def device(self, obj: torch.Generator) -> Device:
        """Return the device of a generator, as the program sees it."""
        proxy = self.created_proxy(obj)
        return proxy.device if proxy is not None else device_of(obj, self.assumed)


def device_of(obj: torch.Generator, assumed: Device | None) -> Device:
    """Return the device of a generator from outside.

    With an assumed device this is the assumed one, except that the default generator of the CPU stays there.
    """
    return to_device(obj.device) if assumed is None or obj is torch.default_generator else assumed


def with_proxies(session: TracingSession, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Return the arguments of an operator, with the proxies of generators."""
    if torch.Generator in map(type, args):
        args = tuple(session.state(Generators).proxy(a) if type(a) is torch.Generator else a for a in args)
    for name, value in kwargs.items():
        if type(value) is torch.Generator:
            kwargs = {**kwargs, name: session.state(Generators).proxy(value)}
    return args, kwargs


def load_attr(session: TracingSession, obj: torch.Generator, name: str) -> Any:
    """Return ``generator.name``: its device, or a method bound to it."""
    raw = lookup_type(torch.Generator, name)
    if name == "device":
        return to_torch_device(session.state(Generators).device(obj))
    if isinstance(raw, types.MethodDescriptorType):
        return types.MethodType(raw, obj)
    return session.machine.generic_load_attr(obj, name)


# -- one generator -------------------------------------------------------------------------------------------


@TABLE.lookaside(torch.Generator)
def _make(session: TracingSession, args: Args, kwargs: Kwargs) -> torch.Generator:
    def device(device: Any = "cpu") -> torch.device:
        return torch.device("cpu" if device is None else device)

    place, assumed = device(*args, **kwargs), session.state(Generators).assumed
    if assumed is None or place.type != assumed.type:
        torch.Generator(place)  # torch refuses a device without generators
    return session.state(Generators).create(prims.make_generator(place), torch.Generator().initial_seed())


@TABLE.lookaside(torch.Generator.manual_seed)
def _seed(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    obj, seed = args[0], decided_value(args[1], "manual_seed")
    began = torch.Generator().manual_seed(seed).initial_seed()  # torch refuses another type
    prims.seed_generator(session.state(Generators).proxy(obj), seed)
    session.state(Generators).of(obj).seeded(began)
    return obj


@TABLE.with_parameters(torch.Generator.seed)
def _reseed(session: TracingSession, obj: Any) -> Any:
    session.state(Generators).of(obj).seeded(None)
    return prims.seed_generator_from_entropy(session.state(Generators).proxy(obj))


@TABLE.with_parameters(torch.Generator.get_state)
def _get_state(session: TracingSession, obj: Any) -> Any:
    return prims.get_generator_state(session.state(Generators).proxy(obj))


@TABLE.with_parameters(torch.Generator.set_state)
def _set_state(session: TracingSession, obj: Any, state: Any) -> Any:
    prims.set_generator_state(session.state(Generators).proxy(obj), state)
    session.state(Generators).of(obj).seeded(None)
    return obj


@TABLE.with_parameters(torch.Generator.clone_state)
def _clone_state(session: TracingSession, obj: Any) -> torch.Generator:
    generator = session.state(Generators).of(obj)
    seed = generator.seed if generator.changed or generator.path is None else None
    return session.state(Generators).create(prims.copy_generator(session.state(Generators).proxy(obj)), seed)


@TABLE.with_parameters(torch.Generator.initial_seed)
def _initial_seed(session: TracingSession, obj: Any) -> int:
    generators = session.state(Generators)
    generator = generators.of(obj)
    seeded_elsewhere = generators.devices_are_seeded and obj.device.type != "cpu"
    if generator.seed is None or seeded_elsewhere:
        raise UnsupportedProgram(
            "the program reads the seed of a generator whose state is known only when it runs",
            hint="Read it before the state is set, or seed with manual_seed.",
        )
    if generator.path is not None and not generator.changed:
        session.note(prims.check_initial_seed, generator.path, generator.seed)
    return generator.seed


def _refuse(name: str) -> None:
    @TABLE.lookaside(getattr(torch.Generator, name))
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        raise UnsupportedProgram(
            f"torch.Generator.{name} inside a compiled function",
            hint="Use get_state, set_state and clone_state, or call it outside.",
        )


for _name in ("get_offset", "set_offset", "graphsafe_get_state", "graphsafe_set_state"):
    _refuse(_name)


# -- the default generators ----------------------------------------------------------------------------------


@TABLE.lookaside(torch.random.manual_seed)
def _seed_all(session: TracingSession, args: Args, kwargs: Kwargs) -> torch.Generator:
    def seed_of(seed: Any) -> Any:
        return seed

    seed = decided_value(session.call(int, (seed_of(*args, **kwargs),), {}), "manual_seed")
    began = torch.Generator().manual_seed(seed).initial_seed()
    prims.manual_seed(seed)
    generator = session.state(Generators).default()
    generator.seeded(began)
    session.state(Generators).devices_are_seeded = True
    return generator.obj


@TABLE.closure_lookaside(torch._compile._disable_dynamo(lambda: None).__code__)
def _wrapped_by_torch(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return ``torch.manual_seed`` as torch's compiler wraps it, once that is loaded."""
    fn, *given = args
    return session.call(fn.__wrapped__, tuple(given), kwargs)


@TABLE.lookaside(torch.seed)
def _reseed_all(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    session.state(Generators).default().seeded(None)
    session.state(Generators).devices_are_seeded = True
    return prims.seed_from_entropy()


def _seeds_cuda(fn: Any, symbol: Any) -> None:
    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
        def given(seed: Any) -> Any:
            return seed

        symbol(session.call(int, (given(*args, **kwargs),), {}))
        session.state(Generators).devices_are_seeded = True


_seeds_cuda(torch.cuda.manual_seed, prims.seed_cuda)
_seeds_cuda(torch.cuda.manual_seed_all, prims.seed_cuda_all)


@TABLE.lookaside(torch.cuda.get_rng_state)
def _cuda_rng_state(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return prims.get_cuda_rng_state(*args, **kwargs)


@TABLE.lookaside(torch.cuda.set_rng_state)
def _set_cuda_rng_state(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    def given(new_state: Any, device: Any = "cuda") -> tuple[Any, Any]:
        return new_state, device

    prims.set_cuda_rng_state(*given(*args, **kwargs))
    session.state(Generators).devices_are_seeded = True


@TABLE.lookaside(inspect.unwrap(torch.random.fork_rng))
def _fork_rng(session: TracingSession, args: Args, kwargs: Kwargs) -> Iterator[None]:
    return _forked(session, *args, **kwargs)


def _forked(
    session: TracingSession,
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Do what ``torch.random.fork_rng`` does: restore all states at its end."""
    if not enabled or device_type == "meta":
        yield
        return
    places = _devices(session, device_type) if devices is None else list(devices)
    default = session.state(Generators).default()
    proxy, before = session.state(Generators).proxy(default.obj), (default.seed, default.changed)
    state = prims.get_generator_state(proxy)
    states = [prims.get_cuda_rng_state(place) for place in places]
    try:
        yield
    finally:
        prims.set_generator_state(proxy, state)
        default.seed, default.changed = before
        for place, of_place in zip(places, states, strict=True):
            prims.set_cuda_rng_state(of_place, place)


def _devices(session: TracingSession, device_type: str | None) -> list[int]:
    """Return all CUDA devices, whose number is constant within a process."""
    accelerator = torch.accelerator.current_accelerator()
    kind = device_type or (accelerator.type if accelerator is not None else "cuda")
    if kind != "cuda":
        raise UnsupportedProgram(
            f"torch.random.fork_rng of {kind} devices inside a compiled function",
            hint="Pass devices=[] for the CPU alone, or fork outside.",
        )
    count = session.language.functions.get(torch.cuda.device_count, torch.cuda.device_count)
    return list(range(count()))

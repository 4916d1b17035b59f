"""Generators of random numbers of Python and of NumPy: which there are, and their states."""

from __future__ import annotations

import random
import types
from typing import Any

from thunder.frontend.natives.libraries import numpy

__all__ = [
    "NUMPY_CLASSES",
    "has_numpy_state",
    "is_host_generator",
    "is_numpy_generator",
    "is_system_generator",
    "method_of",
    "set_state",
    "state_of",
]


#: the classes of NumPy's generators, and of what they are made of
NUMPY_CLASSES = frozenset(
    ("RandomState", "Generator", "SeedSequence", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
)


def is_host_generator(x: Any) -> bool:
    """Return whether ``x`` is a generator of Python's or of NumPy's own classes."""
    return type(x) is random.Random or is_numpy_generator(x)


def is_system_generator(x: Any) -> bool:
    """Return whether ``x`` draws from the operating system, by Python code and ``os.urandom``."""
    return type(x) is random.SystemRandom


def is_numpy_generator(x: Any) -> bool:
    """Return whether ``x`` is a generator of NumPy's own classes."""
    return type(x).__name__ in ("RandomState", "Generator") and has_numpy_state(x)


def has_numpy_state(x: Any) -> bool:
    """Return whether ``x`` is a generator of NumPy, a bit generator or a sequence of seeds."""
    return is_state_class(type(x))


def is_state_class(cls: type) -> bool:
    """Return whether a class is that of a generator of NumPy, a bit generator or a sequence of seeds."""
    module = numpy() if cls.__name__ in NUMPY_CLASSES else None
    return module is not None and cls is getattr(module.random, cls.__name__, None)


def method_of(generator: Any, name: str) -> Any:
    """Return a method of a generator, bound to it."""
    return types.MethodType(getattr(type(generator), name), generator)


def state_of(generator: Any) -> Any:
    """Return the state of a generator."""
    if type(generator) is random.Random:
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def set_state(generator: Any, state: Any) -> None:
    """Set the state of a generator."""
    if type(generator) is random.Random:
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)

"""Data flow of traces: a documented path to `thunder.ir.dataflow`."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.ir.dataflow import (
    ProxyDict,
    consumers,
    find_producer_symbols,
    producers,
    producers_and_consumers,
)

__all__ = ["ProxyDict", "consumers", "find_producer_symbols", "producers", "producers_and_consumers"]

__getattr__ = partial(missing_name, __name__)

"""Data flow of traces: a documented path to `thunder.ir.dataflow`."""

from thunder.ir.dataflow import (
    ProxyDict,
    consumers,
    find_producer_symbols,
    producers,
    producers_and_consumers,
)

__all__ = ["ProxyDict", "consumers", "find_producer_symbols", "producers", "producers_and_consumers"]

"""Traces: the public path of `thunder.ir.trace`, with the text that loads."""

from thunder.base.public_names import publish
from thunder.ir import trace as _module
from thunder.ir.trace import *  # noqa: F403  (for type checkers)
from thunder.ir.trace_reading import load as load
from thunder.ir.trace_writing import Printed as Printed
from thunder.ir.trace_writing import dump as dump

publish(__name__, _module, Printed=Printed, dump=dump, load=load)

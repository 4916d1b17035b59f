"""`python -m thunder mesh MODEL --devices N`: in which layout a decoder trains fastest on many devices.

    python -m thunder mesh llama-3-70b --devices 512 --device h100 --batch 512 --length 8192
    python -m thunder mesh config.json --devices 64 --batch 64 --explain

MODEL is a name, the file of a configuration of transformers, or MODULE:EXPRESSION, the part after the colon
an expression in that module or file whose value is a configuration, a `Decoder` or a model. Nothing runs: the
figures are estimates.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from thunder.core.errors import ThunderError
from thunder.examine import named_program

from .clusters import CLUSTERS
from .decoders import DECODERS
from .search import find_mesh

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "mesh",
        help="in which layout a decoder trains fastest on many devices, by estimates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argument = parser.add_argument
    argument("model", metavar="MODEL", help=f"{', '.join(DECODERS)}; FILE.json; MODULE:EXPRESSION")
    argument("--devices", type=int, required=True, metavar="N", help="their number")
    argument("--device", default="h100", choices=CLUSTERS, help="of which cluster (default: %(default)s)")
    argument("--batch", type=int, metavar="N", help="sequences of a step (default: one for each device)")
    argument("--length", type=int, default=8192, metavar="N", help="tokens of one (default: %(default)s)")
    argument("--fix", action="append", default=[], metavar="FIELD=VALUE", help="of the layouts: tensor=8")
    argument("--most", type=int, default=5, metavar="N", help="how many layouts (default: %(default)s)")
    argument("--explain", action="store_true", help="the formulas and values of the fastest one")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the layouts; return 2 for wrong arguments, and where none fits."""
    try:
        found = find_mesh(
            _model(options.model),
            options.devices,
            batch=options.devices if options.batch is None else options.batch,
            length=options.length,
            device=options.device,
            fixed=dict(map(_field, options.fix)),
            most=options.most,
        )
    except (ThunderError, OSError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(found)
    if options.explain:
        print(f"\n{found[0].explain()}")
    return 0


def _model(text: str) -> Any:
    if text.endswith(".json"):
        return json.loads(Path(text).read_text(encoding="utf-8"))
    return named_program(text, "()")[0] if ":" in text else text


def _field(text: str) -> tuple[str, int | str]:
    name, _, value = text.partition("=")
    return name, int(value) if value.isdecimal() else value

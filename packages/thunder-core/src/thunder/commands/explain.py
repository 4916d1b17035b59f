"""`python -m thunder explain module:function`: which executor would run each call of a program, and why.

    python -m thunder explain mymodel:forward --args "torch.randn(2, 8, device='meta')" --device h200

The part before the colon is a module, as `import` names it, or a file `path/to/mymodel.py`; the part after it
is an expression in that module: a function, a compiled one, or a call that returns an nn.Module,
`"mymodel:Net().eval()"`. The arguments are the values of the expression `--args`, which may use the module's
names and `torch`; or the result of the module's function `inputs()`. The program is not run: the output is
that of `thunder.plan(…).explain()`.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from thunder.base.errors import InvalidArgument, ThunderError
from thunder.compiler.plan import Plan, plan
from thunder.examine.named_programs import add_program_arguments, named_executors, named_program

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="which executor would run each call of a program, and why; the program is not run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_program_arguments(parser)
    parser.add_argument("--device", metavar="NAME", help="the profile of the device to compile for: h200")
    parser.add_argument("--why-not", metavar="EXECUTOR", help="the calls that this executor does not run")
    parser.add_argument("--line", type=int, metavar="N", help="with --why-not: of this line of the program")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the ledger; return 1 if the program cannot be compiled, 2 for wrong arguments."""
    try:
        function, arguments = named_program(options.target, options.args)
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    try:
        planned = plan(
            function, *arguments, device=options.device, executors=named_executors(options.executors)
        )
        ledger = planned.explain()
        if options.why_not is not None:
            ledger = ledger.why_not(options.why_not, line=options.line)
    except ThunderError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(_facts(planned) | json.loads(ledger.to_json()), indent=2))
    else:
        ledger.show()
        print(f"\n{planned}")
    return 0


def _facts(planned: Plan) -> dict[str, Any]:
    memory = planned.memory
    return {
        "device": planned.device.name if planned.device is not None else None,
        "memory": {
            "peak": memory.peak,
            "inputs": memory.inputs,
            "forward": memory.forward,
            "saved": memory.saved,
            "backward": memory.backward,
        },
    }

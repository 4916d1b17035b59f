"""nvFuser for thunder: regions of a program are compiled for NVIDIA GPUs.

The plugin of the executor `nvfuser`. The library, `nvfuser_direct`, is imported when a region first runs.
"""

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, Option, hookimpl

__all__ = ["thunder_executors", "thunder_options"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor."""
    return [
        ExecutorSpec(
            "nvfuser",
            "thunder_nvfuser.library:usable_executor",
            rank=Rank.FUSION,
            description="regions compiled by nvFuser",
            tried="torch 2.13.0 on a CPU, and nvfuser_direct 0.2.36 with torch 2.10.0, which defines what "
            "regions become; not on a GPU yet",
        )
    ]


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options of `thunder.jit` that the executor reads."""
    return [
        Option(
            "nvfuser_products",
            bool,
            False,
            "Whether regions contain matrix products and attention; else torch's kernels compute them.",
        ),
        Option(
            "nvfuser_unchecked_indices",
            bool,
            False,
            "Whether regions contain gathers and scatters; nvFuser does not check indices, as torch does.",
        ),
        Option(
            "nvfuser_sorts",
            bool,
            False,
            "Whether regions contain sorts and topk; nvFuser sorts a row in one block of threads.",
        ),
        Option(
            "nvfuser_random",
            bool,
            False,
            "Whether regions draw numbers by seed and offset; nvFuser draws others than torch.",
        ),
        Option(
            "nvfuser_reproducers",
            str,
            "",
            "A folder in which each definition is written as a program that runs it alone; none if empty.",
        ),
        Option(
            "nvfuser_enable",
            str,
            "",
            "Options of nvFuser to enable, separated by commas: the names of NVFUSER_ENABLE.",
        ),
        Option(
            "nvfuser_disable",
            str,
            "",
            "Options of nvFuser to disable, separated by commas: the names of NVFUSER_DISABLE.",
        ),
        Option(
            "nvfuser_dump",
            str,
            "",
            "What nvFuser prints, from the first region of the process on: the names of NVFUSER_DUMP.",
        ),
    ]

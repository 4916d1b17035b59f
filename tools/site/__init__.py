"""What the documentation's site adds to Sphinx: traces in colours, pictures of the code, plots of tables.

`docs/site/conf.py` names it among the extensions. A picture is made when the site is built, from its
subject: layers from imports, packages from their metadata, plots from the tables of benchmarks/README.md.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from .outputs import ReadableOutputs
from .pictures import LayerPicture, PackagePicture
from .plots import TablePlot
from .reference import show_code

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform of outputs and the directives `layers`, `packages` and `plot-of-table`."""
    app.add_transform(ReadableOutputs)
    # before napoleon, which reads the sections of a docstring
    app.connect("autodoc-process-docstring", lambda *event: show_code(event[-1]), priority=100)
    app.add_directive("layers", LayerPicture)
    app.add_directive("packages", PackagePicture)
    app.add_directive("plot-of-table", TablePlot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Sphinx's settings of the documentation's site. `hatch run site` builds it into .site/html."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pygments.lexers.python import PythonLexer

import thunder

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tools.site.reference import contents  # noqa: E402

# a signature whose default is the environment does not show that of this machine
type(os.environ).__repr__ = lambda environment: "os.environ"

# the tutorials show thunder-core alone, on eager kernels
os.environ.setdefault("THUNDER_DISABLE_PLUGINS", "inductor")

project = "Thunder"
author = "the Thunder team"
version = release = thunder.__version__

# Pages link to each other as files of the repository, so its root is the source directory.
root_doc = "docs/site/index"
include_patterns = [
    "docs/**",
    "packages/*/README.md",
    "benchmarks/README.md",
    "examples/*/README.md",
    "tests/README.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
]
exclude_patterns = ["docs/site/templates/**"]

extensions = [
    "myst_nb",  # pages in markdown, and tutorials whose cells run when the site is built
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "tools.site",  # pictures and plots, traces in colours
]
myst_heading_anchors = 4  # links to headings are those of the repository's pages
nb_execution_mode = "force"
nb_execution_timeout = 300  # seconds for each cell
nb_execution_raise_on_error = True
nb_merge_streams = True

templates_path = ["docs/site/templates"]
# a page for each public module, with the names that are public in it
autosummary_context = {"public": contents()}
autodoc_member_order = "bysource"
default_role = "code"  # docstrings have single backticks
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
suppress_warnings = ["ref.python"]  # a name that two public modules have, in an annotation

html_theme = "furo"
html_title = "Thunder"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False


def is_undocumented_attribute(app, what, name, obj, skip, options):
    """Return True for an attribute of a class without a docstring; the names of a module are all shown."""
    return skip or (what == "class" and not getattr(obj, "__doc__", None)) or None


def is_no_alias(entry: logging.LogRecord) -> bool:
    """Return False for the message on an object that several public modules offer, as they are meant to."""
    return not str(entry.msg).startswith("duplicate object description")


def setup(app):
    app.add_lexer("triton", PythonLexer)  # blocks that need a GPU to run
    app.connect("autodoc-skip-member", is_undocumented_attribute)
    logging.getLogger("sphinx.sphinx.domains.python").addFilter(is_no_alias)

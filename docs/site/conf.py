"""Sphinx's settings of the documentation's site. `hatch run site` builds it into .site/html."""

from __future__ import annotations

import logging
import os

from pygments.lexers.python import PythonLexer

import thunder

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
]
myst_heading_anchors = 4  # links to headings are those of the repository's pages
nb_execution_mode = "force"
nb_execution_timeout = 300  # seconds for each cell
nb_execution_raise_on_error = True
nb_merge_streams = True

templates_path = ["docs/site/templates"]
autosummary_imported_members = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
suppress_warnings = ["ref.python"]  # a name that two public modules have, in an annotation

html_theme = "furo"
html_title = "Thunder"
html_show_copyright = False
html_show_sphinx = False


def is_foreign(app, what, name, obj, skip, options):
    """Return True for a member that another library defines, which a public module has only imported."""
    return skip or not str(getattr(obj, "__module__", None) or "thunder").startswith("thunder")


def is_no_alias(entry: logging.LogRecord) -> bool:
    """Return False for the message on an object that several public modules offer, as they are meant to."""
    return not str(entry.msg).startswith("duplicate object description")


def setup(app):
    app.add_lexer("triton", PythonLexer)  # blocks that need a GPU to run
    app.connect("autodoc-skip-member", is_foreign)
    logging.getLogger("sphinx.sphinx.domains.python").addFilter(is_no_alias)

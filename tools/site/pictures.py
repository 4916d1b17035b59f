"""Pictures of the architecture: layers from core's imports, packages from their metadata."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import graphviz
from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from tools.package_metadata import ROOT, packages

from architecture.layers import folder_of, read_layers
from architecture.source import all_imports, modules_of_core

from .svg import inline

#: a name of a node → the page that it leads to, or None
Link = Callable[[str], str | None]


def reduced(edges: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return an acyclic graph without the edges that others imply.

    The transitive reduction (Aho, Garey and Ullman, SIAM J. Comput. 1(2), 1972).
    """

    @functools.cache
    def below(node: str) -> frozenset[str]:
        return frozenset().union(*({target} | below(target) for target in edges.get(node, ())))

    return {
        node: frozenset(t for t in targets if not any(t in below(other) for other in targets - {t}))
        for node, targets in edges.items()
    }


def imports_of_folders() -> dict[str, frozenset[str]]:
    """Return which folders of thunder-core each of its folders imports."""
    edges: dict[str, set[str]] = {folder_of(name): set() for name in modules_of_core()}
    for record in all_imports(modules_of_core()):
        if record.target.split(".")[0] == "thunder" and folder_of(record.target) != folder_of(
            record.importer
        ):
            edges[folder_of(record.importer)].add(folder_of(record.target))
    return {folder: frozenset(targets) for folder, targets in edges.items()}


def _graph(**attributes: str) -> graphviz.Digraph:
    return graphviz.Digraph(
        graph_attr={"bgcolor": "transparent", "ranksep": "0.35", "nodesep": "0.2", **attributes},
        node_attr={
            "shape": "box",
            "fontname": "sans-serif",
            "fontsize": "11",
            "height": "0.3",
            "margin": "0.12,0.05",
        },
        edge_attr={"arrowsize": "0.6"},
    )


def layers() -> str:
    """Return the picture of core's folders, those of a layer in a line, as SVG."""
    rows = read_layers(ROOT / "ARCHITECTURE.md").rows
    counts: dict[str, int] = {}
    for name in modules_of_core():
        counts[folder_of(name)] = counts.get(folder_of(name), 0) + 1
    graph = _graph()
    above = None
    for layer in sorted({*rows.values()}, reverse=True):
        folders = sorted(name for name, of in rows.items() if of == layer)
        if above is not None:
            graph.edge(above, folders[0], style="invis")  # each layer is below the one before it
        above = folders[0]
        with graph.subgraph(graph_attr={"rank": "same"}) as line:
            for folder in folders:
                modules = f"{counts[folder]} modules" if counts[folder] > 1 else "one module"
                line.node(folder, tooltip=f"layer {layer}: {modules}")
    for folder, targets in sorted(reduced(imports_of_folders()).items()):
        for target in sorted(targets):
            graph.edge(folder, target, tooltip=f"{folder} imports {target}")
    return _svg(graph)


def package_graph(link: Link) -> str:
    """Return the picture of the packages and the libraries that they require, as SVG."""
    known = packages()
    graph = _graph(rankdir="LR", ranksep="0.5")
    required = {name: package.requires for name, package in known.items()}
    libraries = {
        name for package in known.values() for name in package.requires | package.optional
    } - known.keys()
    for name, package in known.items():
        graph.node(
            name,
            tooltip=package.description,
            **{"class": "plugin" if package.plugin else "package"},
            **_linked(link, name),
        )
    for library in sorted(libraries):
        graph.node(library, tooltip="a library", **{"class": "library"})
    for name, targets in sorted(reduced(required).items()):
        for target in sorted(targets):
            graph.edge(name, target, tooltip=f"{name} requires {target}")
        for target in sorted(known[name].optional):
            graph.edge(name, target, tooltip=f"{name} can use {target}", style="dashed")
    return _svg(graph)


def _linked(link: Link, name: str) -> dict[str, str]:
    target = link(name)
    return {"URL": target, "target": "_top"} if target else {}


def _svg(graph: graphviz.Digraph) -> str:
    """Return the drawn graph, whose colours are left to the page's style sheet."""
    text: str = graph.pipe(format="svg", encoding="utf-8")
    text = re.sub(r'\s(?:fill|stroke)="[^"]*"', "", text)
    return re.sub(r"xlink:(href|title)=", r"\1=", text)


class _Picture(SphinxDirective):
    """A picture whose nodes may lead to other pages."""

    def _link(self, page: str) -> str | None:
        if page not in self.env.found_docs:
            return None
        return str(self.env.app.builder.get_relative_uri(self.env.docname, page))


class LayerPicture(_Picture):
    """`{layers}`: the folders of thunder-core by layer, with the imports between them."""

    def run(self) -> list[nodes.Node]:
        """Return the picture as raw HTML."""
        described = "The folders of thunder-core in layers; arrows lead to the folders that each imports."
        return [nodes.raw("", inline(layers(), described, kind="graph"), format="html")]


class PackagePicture(_Picture):
    """`{packages}`: the packages and the libraries that they require, each leading to its README."""

    def run(self) -> list[nodes.Node]:
        """Return the picture as raw HTML."""
        svg = package_graph(lambda name: self._link(f"packages/{name}/README"))
        described = "The packages and the libraries that each requires; dashed are those of extras."
        return [nodes.raw("", inline(svg, described, kind="graph"), format="html")]

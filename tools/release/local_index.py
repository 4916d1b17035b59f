"""A package index on this machine: it has the built files (PEP 503), and refers to the usual one for others.

With `--extra-index-url` another index could answer for a name of ours with a higher version. Here a name of
ours has the built files and no others; a page of any other name is a redirection.
"""

from __future__ import annotations

import html
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

__all__ = ["serve", "usual_index"]

DEFAULT: Final = "https://pypi.org/simple"


def usual_index() -> str:
    """Return the index that pip uses here."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip().rstrip("/") if done.returncode == 0 else DEFAULT


@contextmanager
def serve(files: Mapping[str, Iterable[Path]], other: str) -> Iterator[str]:
    """Serve the files of packages by name while the context lasts; yield the address for `--index-url`."""
    pages = {f"/simple/{name}/": _page(paths) for name, paths in files.items()}
    contents = {f"/files/{path.name}": path for paths in files.values() for path in paths}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in pages:
                self.answer(pages[self.path], "text/html")
            elif self.path in contents:
                self.answer(contents[self.path].read_bytes(), "application/octet-stream")
            elif self.path.startswith("/simple/"):
                self.send_response(302)
                self.send_header("Location", other + self.path.removeprefix("/simple"))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.send_error(404)

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: pip says what it could not fetch."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def _page(paths: Iterable[Path]) -> bytes:
    links = [f'<a href="/files/{html.escape(path.name)}">{html.escape(path.name)}</a>' for path in paths]
    return ("<!DOCTYPE html><title>files</title>" + "<br>".join(links)).encode()

"""The import paths that transforms and packages rely on.

Each module here is another module of thunder under its public name, or a choice of names from several.
No folder of thunder imports from here: a module may move, its public path does not.
"""

from functools import partial

from thunder.base.lazy_modules import submodule

# Packages of plugins add modules to this one.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)

__getattr__ = partial(submodule, __name__)

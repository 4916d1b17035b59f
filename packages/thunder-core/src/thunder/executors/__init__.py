"""The executors that ship with thunder-core: built-in plugins, which hooks find by name."""

from functools import partial

from thunder.base.lazy_modules import submodule

# Packages of plugins add modules to this one.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)

__getattr__ = partial(submodule, __name__)

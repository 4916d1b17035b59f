"""The executors that ship with thunder-core: built-in plugins, found by hooks and imported by nobody."""

from thunder.core.lazy import submodules_of

# Packages of plugins add modules to this one.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)

__getattr__ = submodules_of(__name__)

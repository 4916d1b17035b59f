"""Languages, what proxies resolve to: the public path of `thunder.base.langctx`."""

from functools import partial

from thunder.base.langctx import TORCH, LanguageContext, current_language, resolve_language, using_language
from thunder.base.public_names import missing_name

__all__ = ["TORCH", "LanguageContext", "current_language", "resolve_language", "using_language"]

__getattr__ = partial(missing_name, __name__)

"""The import paths that transforms and packages use."""

from __future__ import annotations

import importlib
import sys

import pytest

from new_processes import run_python

# path → names that it offers
PUBLIC = {
    "thunder.core.analysis": ("Layouts", "escaping", "has_effect", "shared_memory"),
    "thunder.core.compile_data": ("CompileData", "running_compile"),
    "thunder.core.prims": ("OpTags", "PrimIDs", "add", "python_return"),
    "thunder.core.proxies": ("TensorProxy", "NumberProxy", "Proxy"),
    "thunder.core.trace": ("TraceCtx", "from_trace", "tracectx"),
    "thunder.core.entries": ("CacheEntry", "Fact", "FailurePlan", "ProgramStore", "prologue_trace"),
    "thunder.core.session": ("SessionRules", "Handler", "LookasideTable", "SessionState"),
    "thunder.core.symbol": ("Symbol", "BoundSymbol"),
    "thunder.core.dtypes": ("float32", "to_torch_dtype"),
    "thunder.core.devices": ("Device", "to_torch_device"),
    "thunder.core.langctxs": ("TORCH", "LanguageContext", "using_language"),
    "thunder.core.pytree": ("tree_flatten", "tree_map", "tree_unflatten"),
    "thunder.core.errors": ("ThunderError", "UnsupportedProgram"),
    "thunder.core.options": ("DebugOptions",),
    "thunder.core.tags": ("OpTags",),
    "thunder.core.rewrite": ("eval_trace", "visitor_transform"),
    "thunder.core.patterns": ("Pattern",),
    "thunder.core.verify": ("check_trace",),
    "thunder.core.interpreter": ("interpret", "is_jitting", "make_opaque"),
    "thunder.core.module": ("ThunderModule", "get_thunder_module"),
    "thunder.core.transform": ("Transform",),
    "thunder.core.transform_common": ("Note", "Transform", "cse", "dce"),
    "thunder.core.transforms": ("grad", "register_grad", "get_grad", "put_grad", "visitor_transform"),
    "thunder.core.utils": ("producers", "consumers", "ProxyDict"),
    "thunder.core.vjp_utils": ("get_saved_for_backward_tensors", "set_saved_for_backward_tensors"),
    "thunder.extend": ("OperatorExecutor", "FusionExecutor", "Operator", "register_executor", "row_of"),
    "thunder.torch": ("torchsymbol", "add", "einsum", "softmax"),
    "thunder.executors.torchex": ("ex",),
    "thunder.executors.pythonex": ("ex",),
    "thunder.executors.passes": ("claim", "del_last_used", "fuse", "transform_for_execution"),
    "thunder.plugins": ("hookimpl", "hookspec", "ExecutorSpec", "list_plugins"),
    "thunder.testing": ("conformance", "ConformanceTests"),
    "thunder.recipes": ("Recipe", "Plugin", "Lookaside", "PRE", "POST", "compile"),
    "thunder.transforms": (),
    "thunder.examine": ("examine", "get_fusions", "get_fusion_symbols", "make_trace_dot"),
    "thunder.examine.memory_calculation": ("get_alloc_memory",),
}
# public path → the module that it is
SAME_MODULE = {
    "thunder.core.prims": "thunder.ops.prims",
    "thunder.core.trace": "thunder.ir.trace",
    "thunder.core.interpreter": "thunder.interpreter",
    "thunder.core.module": "thunder.wrappers.thunder_module",
}


@pytest.mark.parametrize(("path", "names"), PUBLIC.items())
def test_a_public_path_offers_its_names(path, names):
    module = importlib.import_module(path)
    assert [name for name in names if not hasattr(module, name)] == []


def test_public_paths_are_attributes_after_import_thunder():
    """In a process of its own, where no test has imported a module yet."""
    paths = ", ".join(path for path in PUBLIC)
    run = run_python("-c", f"import thunder\nprint(len(({paths})))")
    assert (run.stdout, run.stderr) == (f"{len(PUBLIC)}\n", "")


@pytest.mark.parametrize(("path", "home"), SAME_MODULE.items())
def test_a_public_path_is_the_module_itself(path, home):
    """State set through either name is seen through the other."""
    assert importlib.import_module(path) is importlib.import_module(home)


def test_the_names_of_operators_are_not_hidden_by_modules():
    """A module of rows does not take the name of an operator: `thunder.torch.einsum` is the operator."""
    language = importlib.import_module("thunder.torch")
    modules = [name for name in language.SYMBOLS if type(getattr(language, name)) is type(sys)]
    assert modules == []

"""Misuse of the interface: each row of the catalogue raises its class and says what to do."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import ramp


def plain(x):
    return x * 2


def branching(x):
    return x if x.sum() > 0 else -x


class Model(nn.Module):
    def forward(self, x):
        return x * 2


class Nothing(thunder.Transform):
    pass


SHARED = Nothing()


def jit_twice_with_one_transform():
    thunder.jit(plain, transforms=[SHARED])
    thunder.jit(plain, transforms=[SHARED])


def scripted():
    class Scripted(torch.jit.ScriptModule):
        pass

    return Scripted()


def distributed():
    """An object of torch's class, made without a process group."""
    wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)
    return wrapped


class FSDPModel(nn.Module):
    """Named as the classes that torch's fully_shard makes."""


#: What is called, the error class, and words that its message must contain.
CALLS: dict[str, tuple[Callable[[], object], str, tuple[str, ...]]] = {
    "a number": (lambda: thunder.jit(3), "InvalidArgument", ("3", "function", "module")),
    "a class": (lambda: thunder.jit(Model), "InvalidArgument", ("Model(",)),
    "no function": (
        lambda: thunder.jit(cache="no caching"),
        "InvalidArgument",
        ("functools.partial(thunder.jit",),
    ),
    "an option of another name": (
        lambda: thunder.jit(plain, cache_mode="x"),
        "UnknownOption",
        ("cache_mode", "cache"),
    ),
    "a misspelt option": (
        lambda: thunder.jit(plain, recompile_limt=3),
        "UnknownOption",
        ("recompile_limit",),
    ),
    "an option of a plugin": (
        lambda: thunder.jit(plain, nv_enable_linear=True),
        "UnknownOption",
        ("nv_enable_linear", "plugin"),
    ),
    "text where an option is an int": (
        lambda: thunder.jit(plain, max_cache_entries="many"),
        "InvalidArgument",
        ("max_cache_entries", "int", "many"),
    ),
    "text where an option is a bool": (
        lambda: thunder.jit(plain, cse="yes"),
        "InvalidArgument",
        ("cse", "bool", "yes"),
    ),
    "early_transforms": (lambda: thunder.jit(plain, early_transforms=[]), "UnknownOption", ("transforms",)),
    "use_cudagraphs": (
        lambda: thunder.jit(plain, use_cudagraphs=True),
        "UnknownOption",
        ("CUDAGraphTransform",),
    ),
    "executors_list": (lambda: thunder.jit(plain, executors_list=[]), "UnknownOption", ("executors",)),
    "an unknown cache mode": (
        lambda: thunder.jit(plain, cache="constant"),
        "InvalidArgument",
        ("constant values", "same input", "no caching"),
    ),
    "an unknown mode of sharp edges": (
        lambda: thunder.jit(plain, sharp_edges="err"),
        "InvalidArgument",
        ("error", "warn", "allow"),
    ),
    "a misspelt executor": (
        lambda: thunder.jit(plain, executors=["troch"]),
        "UnknownExecutor",
        ("troch", "torch", "python"),
    ),
    "a number as an executor": (
        lambda: thunder.jit(plain, executors=["torch", 3]),
        "InvalidArgument",
        ("1", "int"),
    ),
    "None as an executor": (
        lambda: thunder.jit(plain, executors=[None]),
        "InvalidArgument",
        ("0", "None", "returned nothing"),
    ),
    "a class as a transform": (
        lambda: thunder.jit(plain, transforms=[Nothing]),
        "InvalidArgument",
        ("Nothing()",),
    ),
    "a number as a transform": (
        lambda: thunder.jit(plain, transforms=[Nothing(), 3]),
        "InvalidArgument",
        ("1", "int"),
    ),
    "one transform twice": (
        jit_twice_with_one_transform,
        "InvalidArgument",
        ("Nothing", "separate instance", "test_errors.py"),
    ),
    "a misspelt debug option": (
        lambda: thunder.DebugOptions(check_trace=True),
        "UnknownOption",
        ("check_traces",),
    ),
    "debug options in a dict": (
        lambda: thunder.jit(plain, debug_options={"check_traces": True}),
        "InvalidArgument",
        ("DebugOptions(**",),
    ),
    "a number where a debug option is a bool": (
        lambda: thunder.DebugOptions(check_traces=3),
        "InvalidArgument",
        ("check_traces", "bool"),
    ),
    "DistributedDataParallel": (
        lambda: thunder.jit(distributed()),
        "UnsupportedProgram",
        ("ddp", "provides thunder.distributed", "DistributedDataParallel(thunder.jit(model))"),
    ),
    "a module after fully_shard": (
        lambda: thunder.jit(FSDPModel()),
        "UnsupportedProgram",
        ("fsdp", "provides thunder.distributed", "thunder.jit(model)"),
    ),
    "a module of torch.compile": (
        lambda: thunder.jit(torch.compile(Model())),
        "InvalidArgument",
        ("original",),
    ),
    "a function of torch.compile": (
        lambda: thunder.jit(torch.compile(plain)),
        "InvalidArgument",
        ("original",),
    ),
    "a compiled module": (lambda: thunder.jit(thunder.jit(Model())), "InvalidArgument", ("add_transform",)),
    "a scripted module": (lambda: thunder.jit(scripted()), "UnsupportedProgram", ("Python source",)),
    "the traces of a function that is not compiled": (
        lambda: thunder.last_traces(plain),
        "NotCompiled",
        ("doesn't seem to be a thunder compiled function", "thunder.jit"),
    ),
    "the cache hits of a number": (
        lambda: thunder.cache_hits(3),
        "NotCompiled",
        ("doesn't seem to be a thunder compiled function",),
    ),
    "explaining a module that is not compiled": (lambda: thunder.explain(Model()), "NotCompiled", ("Model",)),
    "traces before the first call": (
        lambda: thunder.last_traces(thunder.jit(plain)),
        "NeverCalled",
        ("doesn't seem to have been called yet", "plain"),
    ),
    "prologue traces before the first call": (
        lambda: thunder.last_prologue_traces(thunder.jit(plain)),
        "NeverCalled",
        ("called",),
    ),
    "explaining before the first call": (
        lambda: thunder.explain(thunder.jit(plain)),
        "NeverCalled",
        ("called",),
    ),
    "a symbol outside of a trace": (lambda: thunder.torch.add(ramp(3), ramp(3)), "OutsideTrace", ("add",)),
    "a primitive outside of a trace": (lambda: thunder.prims.add(ramp(3), ramp(3)), "OutsideTrace", ("add",)),
    "an operator without meta and like": (
        lambda: executor().register_operator("op", fn=plain),
        "RegistrationError",
        ("meta", "like"),
    ),
    "an operator with meta and like": (
        lambda: executor().register_operator("op", fn=plain, meta=plain, like=torch.sin),
        "RegistrationError",
        ("meta", "like"),
    ),
    "an implementation without a function": (
        lambda: executor().register_implementation("torch.sin"),
        "RegistrationError",
        ("op", "execution_transform"),
    ),
}


def executor():
    return thunder.extend.OperatorExecutor("judge_executor")


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_explained(name):
    function, error, words = CALLS[name]
    with pytest.raises(getattr(thunder, error)) as caught:
        function()
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_the_log_says_which_option_records_it():
    compiled, printed = thunder.jit(plain), []
    compiled(ramp(3))
    thunder.print_last_interpreter_log(compiled, print_fn=printed.append)
    assert "record_interpreter_history" in "\n".join(map(str, printed))


@dataclasses.dataclass
class Row:
    """The parts that every error carries."""

    attribute: str
    kind: type


@pytest.mark.parametrize(
    "row", [Row("where", list), Row("facts", dict), Row("hint", str)], ids=lambda r: r.attribute
)
def test_every_error_carries_its_parts(row):
    with pytest.raises(thunder.ThunderError) as caught:
        thunder.jit(branching, data_dependent="refuse")(ramp(3))
    assert isinstance(getattr(caught.value, row.attribute), row.kind)


BASES = {
    "InvalidArgument": (TypeError, ValueError),
    "UnknownOption": (TypeError,),
    "NotCompiled": (TypeError,),
    "UnknownExecutor": (ValueError,),
    "OperatorError": (RuntimeError,),
    "UnsupportedProgram": (NotImplementedError,),
    "OutsideTrace": (NotImplementedError,),
    "InternalError": (RuntimeError,),
    "RecompileWarning": (UserWarning,),
}


@pytest.mark.parametrize("name", BASES)
def test_an_error_is_also_the_built_in_one(name):
    assert issubclass(getattr(thunder, name), BASES[name])


def test_an_unknown_option_has_the_documented_text():
    with pytest.raises(
        thunder.UnknownOption, match=r"thunder\.jit has no option 'cache_mode'\. Did you mean 'cache'\?"
    ):
        thunder.jit(plain, cache_mode="constant values")


def test_jit_through_partial_is_what_the_message_for_a_missing_function_advises():
    assert torch.equal(functools.partial(thunder.jit, cache="no caching")(plain)(ramp(3)), plain(ramp(3)))

"""What a package that keeps programs reads of cache entries, and makes them of: a documented path.

`docs/hooks.md` has the hook of such a package, `thunder_program_store`. An entry is its facts, the functions
that run, and what a failing call does; a package writes them, and makes an entry of what it reads.
"""

from functools import partial

from thunder.autograd.call_sizes import sizes_reader
from thunder.autograd.torch_node import Connected, Node, NodeResult
from thunder.autograd.wiring import Wiring
from thunder.base.artefact_cache import ArtefactCache
from thunder.base.cache_queries import CACHED, CacheQuery
from thunder.base.default_generators import default_generators_kept
from thunder.base.equal_values import COMPARISONS, ThisObject, same_leaf
from thunder.base.errors import InternalError, InvalidArgument, Location, ThunderError
from thunder.base.float_expressions import text_of
from thunder.base.generated_source import compile_text
from thunder.base.options import CACHE_OPTIONS
from thunder.base.provenance import ABSENT, STEPS, Path, object_root, own_name, root
from thunder.base.public_names import missing_name
from thunder.base.structural_ids import BLOCK, BLOCK_END, COMMENT, RELEASES, UNPACK
from thunder.compiler.compile_plan import CompilePlan
from thunder.compiler.compiled_objects import compiled_object
from thunder.compiler.failed_calls import FailurePlan, plan_of_traces
from thunder.compiler.inspection import compile_data, compile_stats
from thunder.compiler.jit import jit
from thunder.compiler.kept_programs import ProgramStore
from thunder.compiler.pipeline import Compiled, Context, Pipeline, configured_pipeline
from thunder.compiler.running_compile import compiling
from thunder.compiler.stats import CacheEntry, CompileData
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.frontend.acquire import input_proxy, size_facts
from thunder.frontend.ambient_state import Modes, full_ambient_state
from thunder.frontend.decisions.computed_sizes import ComputedPlaces
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.free_sizes import FreeSizes
from thunder.frontend.guards import Prologue, ambient_fact, prologue_trace
from thunder.frontend.lookasides import environment_queries
from thunder.frontend.lookasides.python_functions import AbstractAnswers
from thunder.frontend.natives.libraries import is_guarded_whole, is_library_class
from thunder.frontend.objects.class_kinds import CONTAINERS, is_immutable, is_python_class
from thunder.frontend.objects.input_overlap import Member, overlapping_groups
from thunder.frontend.objects.object_deaths import Releases
from thunder.frontend.prologue_statements import Interface
from thunder.frontend.trace_request import TraceRequest
from thunder.frontend.traced_replacements import ReplacedFunction, full_name
from thunder.ir.copied_outputs import copied_to_inputs, with_copied
from thunder.ir.dotted_paths import bind_paths
from thunder.ir.effects import is_ordered, written_tensors
from thunder.ir.execution_file import runs_from_file
from thunder.ir.fusion_regions import Region
from thunder.ir.object_names import is_attribute_name
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.region_keys import structural_key
from thunder.ir.registered_operators import OperatorName, callee_of
from thunder.ir.registered_operators import name_of as operator_name
from thunder.ir.size_facts import SizeFact, SizeFacts
from thunder.ir.size_reading import number_formula, size_formula
from thunder.ir.size_relations import FloatFact
from thunder.ir.substitution import substitute, substitute_operands
from thunder.ir.symbol import BoundSymbol, Symbol, with_parts
from thunder.ir.symbolic_sizes import SymbolicInt, SymbolicNumber, new_number, new_size
from thunder.ir.symbolic_sizes import expression as size_expression
from thunder.ir.trace import TraceCtx, TraceTag, detached_trace, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims
from thunder.ops.prims.prologue_checks import CHECKS
from thunder.ops.region_strides import ExpectedStrides, after_forward
from thunder.ops.writing_regions import form_of
from thunder.passes.below_autograd import BelowAutograd
from thunder.passes.del_last_used import del_last_used
from thunder.passes.execution import always_executors
from thunder.passes.fallback_claim import claim_rest
from thunder.passes.mutations import writes
from thunder.passes.notes import Note
from thunder.passes.placed_writes.raising_calls import ProgramEffects
from thunder.passes.requires_grad_flow import propagate_requires_grad
from thunder.passes.transform import Transform
from thunder.passes.write_in_place import InputWrite
from thunder.plugins.plugin_info import PluginInfo, PluginState
from thunder.wrappers.overrides import Overrides
from thunder.wrappers.thunder_module import dispatcher_of

__all__ = [
    "ABSENT",
    "BLOCK",
    "BLOCK_END",
    "CACHED",
    "CACHE_OPTIONS",
    "CHECKS",
    "COMMENT",
    "COMPARISONS",
    "CONTAINERS",
    "RELEASES",
    "STEPS",
    "UNPACK",
    "AbstractAnswers",
    "ArtefactCache",
    "BelowAutograd",
    "BoundSymbol",
    "CacheEntry",
    "CacheQuery",
    "CompileData",
    "CompilePlan",
    "Compiled",
    "ComputedPlaces",
    "Connected",
    "Context",
    "Decision",
    "ExpectedStrides",
    "Fact",
    "FailurePlan",
    "FloatFact",
    "FreeSizes",
    "FusionExecutor",
    "GeneratorProxy",
    "InputWrite",
    "Interface",
    "InternalError",
    "InvalidArgument",
    "Location",
    "Member",
    "Modes",
    "Node",
    "NodeResult",
    "Note",
    "OperatorName",
    "Overrides",
    "Path",
    "Pipeline",
    "PluginInfo",
    "PluginState",
    "ProgramEffects",
    "ProgramStore",
    "Prologue",
    "Region",
    "Releases",
    "ReplacedFunction",
    "SizeFact",
    "SizeFacts",
    "Symbol",
    "SymbolicInt",
    "SymbolicNumber",
    "TensorFacts",
    "TensorProxy",
    "ThisObject",
    "ThunderError",
    "TraceCtx",
    "TraceRequest",
    "TraceTag",
    "Transform",
    "Wiring",
    "after_forward",
    "always_executors",
    "ambient_fact",
    "bind_paths",
    "callee_of",
    "claim_rest",
    "compile_data",
    "compile_stats",
    "compile_text",
    "compiled_object",
    "compiling",
    "configured_pipeline",
    "copied_to_inputs",
    "default_generators_kept",
    "del_last_used",
    "detached_trace",
    "dispatcher_of",
    "environment_queries",
    "form_of",
    "from_trace",
    "full_ambient_state",
    "full_name",
    "input_proxy",
    "is_attribute_name",
    "is_guarded_whole",
    "is_immutable",
    "is_library_class",
    "is_ordered",
    "is_python_class",
    "jit",
    "new_number",
    "new_size",
    "number_formula",
    "object_root",
    "operator_name",
    "overlapping_groups",
    "own_name",
    "plan_of_traces",
    "prims",
    "prologue_trace",
    "propagate_requires_grad",
    "root",
    "runs_from_file",
    "same_leaf",
    "size_expression",
    "size_facts",
    "size_formula",
    "sizes_reader",
    "structural_key",
    "substitute",
    "substitute_operands",
    "text_of",
    "tracectx",
    "with_copied",
    "with_parts",
    "writes",
    "written_tensors",
]

__getattr__ = partial(missing_name, __name__)

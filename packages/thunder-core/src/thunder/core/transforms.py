"""Tools for transforms: a documented path to the modules that define them."""

from functools import partial

from thunder.autograd.rule_lookup import register_grad
from thunder.base.public_names import missing_name
from thunder.compiler.functional_transforms import grad, value_and_grad, vjp
from thunder.compiler.jit import add_transform
from thunder.compiler.small_transforms import comment_fusions, noop
from thunder.ir.dataflow import TOPOSORT_ORDER, Node, bsym_list_to_dag, toposort_bsym_dag
from thunder.ir.evaluation import eval_trace
from thunder.ir.gradient_declarations import NoGradient
from thunder.ir.rewrite import VISIT_TYPE, insert_inplace, replace_inplace, visitor_transform
from thunder.ops.prims.gradient import get_grad, put_grad, put_grads

__all__ = [
    "TOPOSORT_ORDER",
    "VISIT_TYPE",
    "NoGradient",
    "Node",
    "add_transform",
    "bsym_list_to_dag",
    "comment_fusions",
    "eval_trace",
    "get_grad",
    "grad",
    "insert_inplace",
    "noop",
    "put_grad",
    "put_grads",
    "register_grad",
    "replace_inplace",
    "toposort_bsym_dag",
    "value_and_grad",
    "visitor_transform",
    "vjp",
]

__getattr__ = partial(missing_name, __name__)

"""What is wrong with a rule is an error that names the rule and its package."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.compiler.pipeline import configured_pipeline
from thunder.core.patterns import RewriteRule, Rewrites, rewrite
from thunder.extend import OperatorExecutor, Refusal
from thunder.plugins import get_manager, hookimpl
from thunder.plugins.contributions import names_by_plugin
from transforms.rewriting.rewriting_programs import RMS_NORM, applied, compiled, refusals, rms_norm

X, W = torch.randn(3, 4), torch.rand(4)


def sine(x):
    return torch.sin(x) * 2


METADATA = {
    "dtype": lambda x: sine(x).double(),
    "shape": lambda x: sine(x).sum(),
    "structure": lambda x: (sine(x),),
    "two values": lambda x: (sine(x), x),
    "a number": lambda x: 2.0,
    "None": lambda x: None,
}


@pytest.mark.parametrize("what", METADATA)
def test_a_replacement_with_other_metadata_is_an_error(what):
    fn = compiled(sine, rewrite(sine, METADATA[what], name="acme.sine"))
    with pytest.raises(
        thunder.PluginError, match=r"rewrite 'acme.sine' has a replacement whose results differ"
    ) as caught:
        fn(X)
    assert f"module {__name__}" in str(caught.value)
    assert "return torch.sin(x) * 2" in str(caught.value)
    assert "pattern:  cpu f32[3, 4]" in str(caught.value)


def test_a_replacement_that_writes_to_a_tensor_is_an_error():
    for replacement in (lambda x: x.clamp_(0, 1).sin(), lambda x: (x * 1).view(-1).sin_().view(x.shape)):
        fn, x = compiled(sine, rewrite(sine, replacement, name="acme.sine")), X.clone()
        with pytest.raises(thunder.PluginError, match=r"writes to a tensor(.|\n)*writes:  torch"):
            fn(x)
        torch.testing.assert_close(x, X)


def test_a_replacement_that_loses_the_gradient_is_an_error():
    fn = compiled(sine, rewrite(sine, lambda x: sine(x).detach(), name="acme.sine"))
    torch.testing.assert_close(fn(X), sine(X))
    with pytest.raises(thunder.PluginError, match="requires_grad"):
        fn(X.clone().requires_grad_())


def test_faults_of_a_rule_name_it():
    def broken(x):
        raise ValueError("no such kernel")

    for rule, text in (
        (rewrite(sine, broken), "rewrite 'sine' has a replacement that raised ValueError: no such kernel"),
        (rewrite(sine, sine, check=broken), "rewrite 'sine' has a check that raised ValueError"),
        (rewrite(sine, sine, check=lambda x: 1), "rewrite 'sine' has a check that returned 1"),
    ):
        with pytest.raises(thunder.PluginError, match=text) as caught:
            compiled(sine, rule)(X)
        assert f"module {__name__}" in str(caught.value)


UNUSABLE = {
    "has an effect": lambda x: torch.nn.functional.dropout(x, 0.5) * 2,
    "which is not a tensor that it computes": lambda x: x,
    "which no call of it takes as it is": lambda x, y: x.sin(),
    "cannot be traced: ZeroDivisionError": lambda x: x.sin() * (1 / 0),
}


@pytest.mark.parametrize("text", UNUSABLE)
def test_a_pattern_that_cannot_be_matched_is_an_error(text):
    rule = rewrite(UNUSABLE[text], lambda *args: args[0], name="acme.rule")
    with pytest.raises(thunder.PluginError, match=text) as caught:
        compiled(lambda x: x * 2, rule)(X)
    assert "'acme.rule'" in str(caught.value)


def test_a_pattern_for_special_arguments_has_examples():
    def pattern(x, index):
        return x.view(2, 3, 4).sum(1)[index]

    rule = rewrite(
        pattern, lambda x, i: x.view(2, 3, 4)[i].sum(1), examples=(torch.empty(24), torch.tensor([0]))
    )
    fn = compiled(lambda x, i: x.view(2, 3, 4).sum(1)[i], rule)
    x, i = torch.randn(24), torch.tensor([1, 0])
    torch.testing.assert_close(fn(x, i), pattern(x, i))
    assert applied(fn) == ["pattern"]


def test_a_check_sees_metadata_and_numbers():
    seen = []

    def check(x, weight, eps):
        seen.append((x.shape, weight.dtype, eps))
        return x.shape[-1] % 8 == 0 or Refusal("width", "takes widths that 8 divides", width=x.shape[-1])

    fn = compiled(lambda x, w: rms_norm(x, w, 1e-5), rewrite(rms_norm, RMS_NORM.replacement, check=check))
    fn(X, W)
    assert refusals(fn) == ["width"]
    assert "rule rms_norm of module" in str(thunder.explain(fn))
    assert "takes widths that 8 divides (width=4)" in str(thunder.explain(fn))
    fn(torch.randn(2, 8), torch.rand(8))
    assert applied(fn) == ["rms_norm"]
    assert [eps for _, _, eps in seen] == [1e-5, 1e-5]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rewrite(lambda *x: x[0], sine), "cannot be named '<lambda>'"),
        (lambda: rewrite(lambda *x: x[0], sine, name="a"), "has the parameter"),
        (lambda: rewrite(sine, lambda x, y: x), "does not take the pattern's arguments"),
        (lambda: rewrite(sine, sine, check=lambda: True), "the check of rewrite 'sine' does not take"),
        (lambda: rewrite(sine, None), "the replacement of a rewrite is a function"),
        (lambda: rewrite(sine, sine, casts="all"), "casts= of rewrite 'sine' is 'all'"),
        (lambda: rewrite(sine, sine, examples=()), "examples= of rewrite 'sine' has 0 arguments"),
        (lambda: rewrite(lambda n=2: n, sine, name="a"), "has no parameter that is a tensor"),
        (lambda: rewrite(lambda x, keepdim=False: x, sine, name="a"), "is not a tensor, int or float"),
        (lambda: rewrite(torch.sin, sine, name="a"), "which has no signature"),
        (lambda: Rewrites(sine), "Rewrites takes rules"),
    ],
)
def test_misuse_is_refused_when_the_rule_is_made(make, text):
    with pytest.raises(thunder.InvalidArgument, match=text):
        make()


# -- rules of packages


class Package:
    def __init__(self, *rules: RewriteRule) -> None:
        self.rules = rules

    @hookimpl
    def thunder_rewrites(self):
        return self.rules


def test_rules_of_a_package_are_applied_in_each_compile():
    with get_manager().temporary(Package(RMS_NORM), name="acme"):
        fn = thunder.jit(lambda x, w: rms_norm(x, w, 1e-5))
        torch.testing.assert_close(fn(X, W), rms_norm(X, W, 1e-5))
        assert applied(fn) == ["rms_norm"]
        assert "rewritten: t" in str(thunder.explain(fn))
        assert thunder.explain(fn).notes[0].origin in thunder.explain(fn).to_json()
    fn = thunder.jit(lambda x, w: rms_norm(x, w, 1e-5))
    fn(X, W)
    assert applied(fn) == []


def test_before_and_after_order_rules_of_several_packages():
    def one(x):
        return x.sin() * 3

    def two(x):
        return x.sin() * 3 + 1

    first = rewrite(one, lambda x: 3 * x.sin(), name="acme.one")
    second = rewrite(two, lambda x: 1 + 3 * x.sin(), name="bcme.two", before="acme.one")
    with (
        get_manager().temporary(Package(first), name="acme"),
        get_manager().temporary(Package(second), name="bcme"),
    ):
        fn = thunder.jit(two)
        fn(X)
        assert applied(fn)[0] == "bcme.two"
    third = rewrite(one, first.replacement, name="acme.one", after=("bcme.two", "not.installed"))
    fn = compiled(two, third, rewrite(two, second.replacement, name="bcme.two"))
    fn(X)
    assert applied(fn)[0] == "bcme.two"


def test_a_cycle_of_rules_is_told_as_a_cycle():
    a = rewrite(sine, sine, name="acme.a", before="bcme.b")
    b = rewrite(sine, sine, name="bcme.b", before="ccme.c")
    c = rewrite(sine, sine, name="ccme.c", before="acme.a")
    free = rewrite(sine, sine, name="dcme.d")
    with pytest.raises(
        thunder.RegistrationError, match=r"a cycle: acme.a → bcme.b → ccme.c → acme.a"
    ) as caught:
        compiled(sine, free, c, a, b)(X)
    assert f"before=['bcme.b'], module {__name__}" in str(caught.value)
    assert "dcme.d" not in str(caught.value)


def test_two_rules_of_one_name_are_refused():
    rules = rewrite(sine, sine, name="acme.a"), rewrite(sine, sine, name="acme.a")
    with pytest.raises(thunder.RegistrationError, match=r"two rewrite rules are named 'acme.a'"):
        compiled(sine, *rules)(X)
    fn = compiled(sine, rules[0], rules[0])
    assert fn(X).shape == X.shape


def test_a_package_that_returns_something_else_is_at_fault():
    with (
        get_manager().temporary(Package(sine), name="acme"),
        pytest.raises(thunder.PluginError, match="thunder_rewrites of plugin 'acme' returned"),
    ):
        thunder.jit(sine)(X)


def test_a_rule_for_an_executor_needs_it():
    ex = OperatorExecutor("acme_rewriting")
    kernel = ex.register_operator("sine", like=thunder.torch.sin, fn=torch.sin)
    rule = rewrite(sine, lambda x: kernel(x) * 2, executors="acme_rewriting")
    fn = compiled(sine, rule, executors=[ex])
    torch.testing.assert_close(fn(X), sine(X))
    assert applied(fn) == ["sine"]
    fn = compiled(sine, rule)
    fn(X)
    assert applied(fn) == []


def test_rules_are_applied_under_checks_and_in_plans():
    fn = compiled(
        lambda x, w: rms_norm(x, w, 1e-5), RMS_NORM, debug_options=thunder.DebugOptions(check_traces=True)
    )
    torch.testing.assert_close(fn(X, W), rms_norm(X, W, 1e-5))
    assert applied(fn) == ["rms_norm"]
    plan = thunder.plan(lambda x, w: rms_norm(x, w, 1e-5), X, W, transforms=Rewrites(RMS_NORM))
    assert [r.rule for r in plan.explain().notes] == ["rms_norm"]


def test_a_package_is_asked_once_for_the_rules_of_the_executors_of_a_compile():
    asked = []

    class Asked:
        @hookimpl
        def thunder_rewrites(self, executors):
            asked.append(executors)
            return ()

    ex = OperatorExecutor("acme_asked")
    with get_manager().temporary(Asked(), name="acme"):
        for executors in (["torch"], ["torch"], [ex, "torch"]):
            thunder.jit(sine, executors=executors)(X)
    assert ["acme_asked" in names for names in asked] == [False, True]
    assert all("torch" in names for names in asked)


def test_the_list_of_plugins_has_the_rules_of_a_package():
    rule = rewrite(sine, sine, name="acme.sine")
    with get_manager().temporary(Package(rule), name="acme"):
        assert names_by_plugin(get_manager())["acme"] == {"rewrites": ["acme.sine"]}


def test_own_rules_are_applied_where_the_plugin_is_disabled():
    with thunder.plugins.disabled("transforms-under-test"):
        fn = compiled(lambda x, w: rms_norm(x, w, 1e-5), RMS_NORM)
        torch.testing.assert_close(fn(X, W), rms_norm(X, W, 1e-5))
    assert applied(fn) == ["rms_norm"]


def test_a_root_that_is_not_the_patterns_is_an_error():
    wrong = rewrite(lambda x: torch.sin(x).cos(), lambda x: x * 1, name="wrong", root="prims.sin")
    with pytest.raises(thunder.PluginError, match=r"ends with prims.cos, and root= is prims.sin"):
        thunder.jit(lambda x: torch.sin(x).cos(), transforms=Rewrites(wrong))(X)
    assert thunder.jit(lambda x: x + 1, transforms=Rewrites(wrong))(X).equal(X + 1)


def test_rules_of_packages_and_transforms_have_one_stage():
    with get_manager().temporary(Package(RMS_NORM), name="acme"):
        names = configured_pipeline((Rewrites(RMS_NORM), Rewrites()), {}).names()
    assert names[names.index("rewrite") + 1] == "autograd"
    assert names.count("rewrite") == 1

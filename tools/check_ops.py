#!/usr/bin/env python3
"""Fails if a kernel's op has no test of one of three kinds: its scalar twin against another library's numbers (a golden),
its gradient against finite differences, its fast kernel against the twin. It finds ops by their names in the tests.

usage: check_ops.py SRC TESTS

golden     forward and update ops: a test that includes torch_goldens.h, or a reason in WITHOUT_GOLDEN
gradient   ops whose rule has a gradient: tests/conformance/gradients_test.cc, or a reason in WITHOUT_DIFFERENCES. Backward ops
           run there as parts of their forward op, which must exist
twin       a test that compares with the twin (tests/conformance, src/backend/cpu)
"""
import pathlib, re, sys

WITHOUT_GOLDEN = {
    "Dropout": "its draws are our own; tests/conformance holds their share and their scale",
    "Noise": "its draws are our own; tests/conformance holds their range",
    "StochasticRound": "its draws are our own; tests/conformance holds its two neighbours, their odds and its mean",
    "AttentionStep": "a part of a ring's attention, which no library returns; its steps make up attention",
    "ShortConvCached": "held to short_conv, token by token",
    "GatedDeltaCached": "held to gated_delta, token by token",
    "SsdCached": "held to ssd, token by token",
}
WITHOUT_DIFFERENCES = {
    "AttentionStepBackward": "a part of a ring's gradients: tests/passes/ring_test.cc adds them up to those of attention",
}
BACKWARD = re.compile(r"^(\w+?)(?:Backward|Dx|Dw)$")
# Backward ops by another name, with a forward op whose gradient runs them.
FORWARD_OF = {"SumRows": "Linear"}


def mentions(paths, condition):
    """The ops that tests name, of all files that meet the condition."""
    names = set()
    for path in paths:
        text = path.read_text()
        if condition(text): names |= set(re.findall(r"\bOp::k(\w+)", text))
    return names


def main(src, tests):
    src, tests = pathlib.Path(src), pathlib.Path(tests)
    ops = re.findall(r"^TEMPER_OP\((\w+), \w+, Kernel\)", (src / "graph/op_list.inc").read_text(), re.M)
    differentiable = set()
    for path in (src / "graph/ops").glob("*.cc"):
        text = path.read_text()
        makers = dict(re.findall(r"^constexpr OpRule (\w+)\((.*?)^}$", text, re.M | re.S))

        def has_gradient(rule):
            """A rule, or a function that makes one, perhaps from another's."""
            return bool(re.search(r"\.gradient = [A-Z]", rule)) or any(
                has_gradient(makers[made]) for made in re.findall(r"\b(\w+)\(", rule) if made in makers)

        for name, rule in re.findall(r"^(?:constinit )?const OpRule k(\w+)Rule = (.*?);$", text, re.M | re.S):
            if has_gradient(rule): differentiable.add(name)
    conformance = sorted((tests / "conformance").glob("*_test.cc"))
    goldens = mentions(conformance, lambda text: '"torch_goldens.h"' in text)
    gradients = mentions([tests / "conformance/gradients_test.cc"], lambda _: True)
    twins = mentions(conformance + sorted((src / "backend/cpu").rglob("*_test.cc")),
                     lambda text: "ExpectConforms(" in text or re.search(r"\b[Tt]wins?\b", text) and "RunnableIsas" in text)

    faults = []

    def need(kind, op, has, excuses):
        if has and op in excuses: faults.append(f"{op}: has a {kind}; its excuse in tools/check_ops.py can go")
        if not has and op not in excuses: faults.append(f"{op}: no test has a {kind} of it (docs/howto/add_op.md)")

    for op in ops:
        backward = BACKWARD.match(op)
        forward = FORWARD_OF.get(op) or (backward and backward.group(1))
        if forward and forward not in ops: faults.append(f"{op}: there is no op {forward} whose gradient runs it")
        if not forward: need("golden", op, op in goldens, WITHOUT_GOLDEN)
        if (forward or op) in differentiable or forward: need("gradient check", op, (forward or op) in gradients, WITHOUT_DIFFERENCES)
        need("comparison with the twin", op, op in twins, {})
    for fault in faults:
        print(fault)
    print(f"{len(ops)} ops of kernels, {len(faults)} faults")
    return len(faults)


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:3]) else 0)

#!/usr/bin/env python3
"""Writes into docs/supported.md which of transformers' causal language models Temper supports, and what the others need:
from transformers' own list, src/model/family_list.inc and src/model/missing_list.inc. Run it for a new version of
transformers; it fails and names what is new there, or gone. Usage: make_supported.py [--check]
"""

import pathlib
import re
import sys
import textwrap

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/supported.md"
BEGIN, END = "<!-- begin: tests/parity/make_supported.py -->\n", "<!-- end -->\n"


def faults(families, missing):
    """What contradicts transformers' list."""
    known = {kind: of for of, kind, _ in missing}
    for kind, of in CLASSES.items():
        if kind in known and known[kind] not in (of, *OF_FILES):
            yield f"{kind} is {of}, not {known[kind]} as missing_list.inc says"
        if kind not in known and of not in families:
            yield f"{kind} ({of}) is new: add it to family_list.inc, or to missing_list.inc with what it needs"
    for of, kind, _ in missing:
        if kind not in CLASSES:
            yield f"{kind} of missing_list.inc is gone"
        if families.get(of) == kind:
            yield f"{kind} is in both lists"
    listed = set(CLASSES.values()) | set(
        transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
    for of in families:
        if of not in listed and of not in OF_FILES:
            yield f"{of} of family_list.inc is no class any more"


# Classes that files name, and transformers does not.
OF_FILES = {"ExaoneForCausalLM", "SarvamMoEForCausalLM"}


def paragraph(head, kinds):
    return textwrap.fill(f"{head}: " + ", ".join(f"`{kind}`" for kind in kinds) + ".", 150, break_on_hyphens=False)


def table(missing):
    needs = {}
    for _, kind, what in missing:
        needs.setdefault(what, []).append(kind)
    supported = [kind for kind in CLASSES if kind not in {kind for _, kind, _ in missing}]
    lines = [f"Of the {len(CLASSES)} types of causal language models in transformers {transformers.__version__}, "
             "by `model_type`:", "", paragraph(f"**Supported** ({len(supported)})", supported)]
    for what, kinds in sorted(needs.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += ["", paragraph(f"*{what}* ({len(kinds)})", sorted(kinds))]
    lines[3:3] = ["", "The others need what Temper does not compute, and are refused with these words:"]
    return "\n".join(lines) + "\n"


def main():
    families = dict(re.findall(r"^TEMPER_(?:FAMILY|MULTIMODAL)\((\w+), ([\w-]+),",
                               (ROOT / "src/model/family_list.inc").read_text(), re.M))
    missing = re.findall(r'^TEMPER_MISSING\((\w+), ([\w-]+), "(.*)"\)$',
                         (ROOT / "src/model/missing_list.inc").read_text(), re.M)
    found = list(faults(families, missing))
    if found:
        sys.exit("\n".join(found))
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    made = before + BEGIN + table(missing) + END + rest.split(END)[1]
    if "--check" in sys.argv:
        sys.exit(0 if made == text else f"{PAGE} is not what the lists say: run this script")
    PAGE.write_text(made)


if __name__ == "__main__":
    main()

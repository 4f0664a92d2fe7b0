#!/usr/bin/env python3
"""Writes the goldens of the template tests from Python's jinja2.

By hand, from the repository root, in an environment with jinja2 (3.1.6):
    python3 tests/template/make_goldens.py [TEST_DATA_FOLDER]
jinja_cases.json comes from jinja_cases.py. With the folder of outside test data, also writes chat_goldens.json: the output of real models' templates (we may not copy the templates themselves).
"""
import glob
import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import jinja2
from environment import render, render_with_spans
from jinja_cases import CASES, CONTEXT

HERE = os.path.dirname(os.path.abspath(__file__))


def golden(source, context):
    try:
        return {"text": render(source, context)}
    except jinja2.TemplateSyntaxError as e:
        return {"error": f"{type(e).__name__}: {e.message}", "line": e.lineno}
    except Exception as e:  # anything that a template can raise
        return {"error": f"{type(e).__name__}: {e}"}


def write(name, data):
    with open(os.path.join(HERE, name), "w") as f:
        json.dump(data, f, indent=0, ensure_ascii=True)
        f.write("\n")


def cases():
    out = []
    for case in CASES:
        source, extra = case if isinstance(case, tuple) else (case, {})
        row = {"template": source}
        if extra:
            row["context"] = extra
        row.update(golden(source, {**CONTEXT, **extra}))
        out.append(row)
    assert len({r["template"] for r in out}) == len(out), "duplicate case"
    failed = sum("error" in r for r in out)
    print(f"{len(out)} cases, {failed} of them errors")
    write("jinja_cases.json", {"context": CONTEXT, "cases": out})


CONVERSATIONS = {
    "turns": [
        {"role": "system", "content": "Be brief.  "},
        {"role": "user", "content": " Hi, \u4f60\u597d \U0001f600! "},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Tell me \"more\"\nplease"},
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nNo."},
    ],
    "no_system": [{"role": "user", "content": "What is 1+1?"}],
    "tool_reply": [
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "abcdefghi", "type": "function",
             "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2.0, "deep": {"x": [1, None, True]}}}}]},
        {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "{\"t\": -3}"},
        {"role": "assistant", "content": "Minus three."},
    ],
}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The <weather> & more.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name."}, "days": {"type": ["integer", "null"], "description": "d"}},
        "required": ["city"]},
    "return": {"type": "object", "description": "Degrees"}}}]


def chat(folder):
    templates = {}
    for path in sorted(glob.glob(os.path.join(folder, "chat_templates", "*.jinja"))):
        templates[os.path.relpath(path, folder)] = open(path).read()
    for path in sorted(glob.glob(os.path.join(folder, "tokenizers", "*", "tokenizer_config.json"))):
        source = json.load(open(path)).get("chat_template")
        if isinstance(source, str):
            templates[os.path.relpath(path, folder)] = source
    contexts = {}
    for path in sorted(glob.glob(os.path.join(folder, "chat_templates", "contexts", "*.json"))):
        contexts[os.path.relpath(path, folder)] = json.load(open(path))
    own = {}
    for name, messages in CONVERSATIONS.items():
        for generate in (False, True):
            for tools in (None, TOOLS):
                key = f"{name}{'+prompt' if generate else ''}{'+tools' if tools else ''}"
                own[key] = {"messages": messages, "tools": tools, "add_generation_prompt": generate,
                            "bos_token": "<s>", "eos_token": "</s>"}
    rows = []
    for path, source in templates.items():
        for name, context in {**contexts, **own}.items():
            row = {"template": path, "context": name}
            row.update(golden(source, context))
            if "text" in row:  # a hash if it is long, to keep the file small
                text = row.pop("text").encode()
                row["bytes"] = len(text)
                row["fnv1a"] = "%016x" % fnv1a(text)
            rows.append(row)
    print(f"{len(rows)} renders of {len(templates)} real templates")
    write("chat_goldens.json", {"contexts": own, "renders": rows})


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


cases()
if len(sys.argv) > 1:
    chat(sys.argv[1])

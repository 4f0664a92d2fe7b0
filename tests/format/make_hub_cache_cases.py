#!/usr/bin/env python3
"""Where huggingface_hub finds repositories on the local disk: hub_cache_cases.json, which hub_cache_test.cc reads.

Each case builds a cache in a folder, sets variables of the environment and asks snapshot_download(local_files_only=True)
in a process of its own. "$ROOT" stands for that folder. Usage: make_hub_cache_cases.py [--check]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

OUT = pathlib.Path(__file__).parent / "hub_cache_cases.json"
C1, C2 = "a" * 40, "0123456789abcdef" * 2 + "01234567"

ASK = """
import sys
from huggingface_hub import constants, snapshot_download
print(constants.HF_HUB_CACHE)
try:
    kind, name, revision = sys.argv[1:]
    print(snapshot_download(name, repo_type=kind, revision=revision or None, local_files_only=True))
except Exception as error:
    print("-")
"""


def repository(cache, kind, name, refs, commits):
    """Files (path -> text) of a cached repository."""
    folder = f"{cache}/{kind}s--{name.replace('/', '--')}"
    files = {f"{folder}/refs/{ref}": commit for ref, commit in refs.items()}
    for commit in commits:
        files[f"{folder}/snapshots/{commit}/config.json"] = "{}"
    return files


def hub(cache):
    return {
        **repository(cache, "model", "org/name", {"main": C1, "v2": C2, "refs/pr/1": C2, "gone": "b" * 40}, [C1, C2]),
        **repository(cache, "model", "old", {"main": C2}, [C2]),
        **repository(cache, "dataset", "org/name", {"main": C2}, [C2]),
    }


def cases():
    default = {"HOME": "$ROOT/home"}
    at = {
        "home/.cache/huggingface/hub": default,
        "xdg/huggingface/hub": {**default, "XDG_CACHE_HOME": "$ROOT/xdg"},
        "hf/hub": {**default, "XDG_CACHE_HOME": "$ROOT/xdg", "HF_HOME": "$ROOT/hf"},
        "legacy": {**default, "HF_HOME": "$ROOT/hf", "HUGGINGFACE_HUB_CACHE": "$ROOT/legacy"},
        "cache": {**default, "HF_HOME": "$ROOT/hf", "HUGGINGFACE_HUB_CACHE": "$ROOT/l", "HF_HUB_CACHE": "$ROOT/cache"},
        "home/mine": {**default, "HF_HUB_CACHE": "~/mine"},
        "disk/x/hub": {**default, "DISK": "$ROOT/disk", "HF_HOME": "$DISK/x"},
        "disk/hub": {**default, "DISK": "$ROOT/disk", "HF_HUB_CACHE": "${DISK}/hub"},
        "home/.cache/hub": {**default, "XDG_CACHE_HOME": "$ROOT/xdg", "HF_HOME": "~/.cache"},
    }
    for place, env in at.items():
        yield hub(place), env, "model", "org/name", ""
    files, env = hub("cache"), {"HF_HUB_CACHE": "$ROOT/cache"}
    for revision in ["main", "v2", "refs/pr/1", C1, C2, "c" * 40, C1[:7], "v3", "gone", C2.upper()]:
        yield files, env, "model", "org/name", revision
    for kind, name in [("dataset", "org/name"), ("model", "old"), ("model", "org/none"), ("dataset", "old")]:
        yield files, env, kind, name, ""
    for name in ["org--x/name", "-org/name", "org-/name", "org/.name", "org/name.git", "a/b/c", "org/na..me", "o" * 97]:
        yield repository("cache", "model", name, {"main": C1}, [C1]), env, "model", name, ""


def answer(case):
    files, env, kind, name, revision = case
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        put = {k: v.replace("$ROOT", root) for k, v in env.items()}
        run = subprocess.run([sys.executable, "-c", ASK, kind, name, revision], env={"PATH": os.environ["PATH"], **put},
                             capture_output=True, text=True, check=True)
        cache, snapshot = (line.replace(root, "$ROOT") for line in run.stdout.splitlines()[:2])
    return {"env": env, "kind": kind, "name": name, "revision": revision, "cache": cache,
            "snapshot": None if snapshot == "-" else snapshot, "files": files}


def main():
    made, layouts = [], []
    for case in cases():
        a = answer(case)
        files = a.pop("files")
        if files not in layouts:
            layouts.append(files)
        made.append({**a, "layout": layouts.index(files)})
    lines = ",\n".join("    " + json.dumps(m) for m in made)
    trees = ",\n".join("    " + json.dumps(t) for t in layouts)
    text = f'{{\n  "layouts": [\n{trees}\n  ],\n  "cases": [\n{lines}\n  ]\n}}\n'
    if "--check" in sys.argv:
        sys.exit(0 if OUT.read_text() == text else f"{OUT} is not what huggingface_hub says now")
    OUT.write_text(text)


if __name__ == "__main__":
    main()

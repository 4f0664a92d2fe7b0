#!/usr/bin/env python3
"""Fails if two files define the same name where one compilation, or the linker, sees both:
- a class in the same named namespace: the linker would merge their inline functions and use one file's for both;
- any name in an unnamed namespace of the same layer and namespace: its sources are compiled together (cmake/layers.cmake),
  and of two overloads one file would silently call the other's;
- a test file's namespace must be its own, <namespace>::<file's name>, for the same reason.

usage: check_one_definition.py FOLDER...
"""
import collections, pathlib, re, sys

SCOPE = re.compile(r"^(?:namespace (?P<open>[\w:]*) ?\{|(?P<close>\}  // namespace)|(?:class|struct) (?P<name>\w+)(?=[^;:(]*(?: : [^;]*)?\{))", re.M)
# A definition at the start of a line: a type, an alias, a constant or a function.
LOCAL = re.compile(r"(?:class|struct|enum class|enum|union) (\w+)(?=[^;]*\{)|using (\w+) =|"
                   r"[\w:<>,\s*&()\[\]]*?[\s*&](\w+)(?:\[[^\]]*\])*(?:\(|\s*=|\{|;)")
# Compiled one by one, or a program of its own.
ALONE = re.compile(r"^bench/|^tests/device/\w+/|/graph/ops/|_(?:avx2|avx512|amx)\.cc$|_fuzz\.cc$|\.cu$|^src/.*/main\.cc$")


def layer_of(path):
    parts = path.parts[:-1]
    return parts[:3] if len(parts) > 2 and parts[1] in ("backend", "comm") else parts[:2]


classes, places, local, strays = 0, collections.defaultdict(list), collections.defaultdict(set), []
for folder in sys.argv[1:]:
    for path in sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".h", ".cc", ".cu")):
        text, scopes = path.read_text(), []
        test = path.name.endswith("_test.cc")
        if test and not re.search(rf"^namespace [\w:]+::{path.stem} \{{$", text, re.M):
            strays.append(path)
        for m in SCOPE.finditer(text):
            if m["close"]:
                scopes.pop()
            elif m["open"] is not None:
                scopes.append(m["open"])
            elif "" not in scopes:
                classes += 1
                places["::".join(scopes + [m["name"]])].append(str(path))
        if path.suffix != ".cc" or test or ALONE.search(str(path)):
            continue
        for line in text.split("\n"):
            if m := re.match(r"namespace ([\w:]*) ?\{$", line):
                scopes.append(m[1])
            elif line.startswith("}  // namespace"):
                scopes.pop()
            elif scopes and scopes[-1] == "" and line[:1].isalnum() and (m := LOCAL.match(re.sub(r"^template <.*?> ", "", line))):
                local[layer_of(path), "::".join(scopes), m[1] or m[2] or m[3]].add(str(path))
faults = [f"{name}: defined in {', '.join(files)}" for name, files in places.items() if len(set(files)) > 1]
faults += [f"{name}: in unnamed namespaces of {', '.join(sorted(files))}" for (_, _, name), files in local.items() if len(files) > 1]
faults += [f"{path}: its tests should be in a namespace that ends with ::{path.stem}" for path in strays]
print("\n".join(faults + [f"{classes} classes, {len(local)} local names, {len(faults)} faults"]))
sys.exit(1 if faults or not classes or not local else 0)

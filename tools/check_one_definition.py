#!/usr/bin/env python3
"""Fails if two files define a class of the same name in the same namespace: the linker would merge their inline
functions and templates and use one file's for both.

usage: check_one_definition.py FOLDER...
"""
import collections, pathlib, re, sys

SCOPE = re.compile(r"^(?:namespace (?P<open>[\w:]*) ?\{|(?P<close>\}  // namespace)|(?:class|struct) (?P<name>\w+)(?=[^;:(]*(?: : [^;]*)?\{))", re.M)

classes, places = 0, collections.defaultdict(list)
for folder in sys.argv[1:]:
    for path in sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".h", ".cc", ".cu")):
        scopes = []
        for m in SCOPE.finditer(path.read_text()):
            if m["close"]:
                scopes.pop()
            elif m["open"] is not None:
                scopes.append(m["open"])
            elif "" not in scopes:  # a class in an unnamed namespace is local to its file
                classes += 1
                places["::".join(scopes + [m["name"]])].append(str(path))
twice = {name: files for name, files in places.items() if len(set(files)) > 1}
for name, files in twice.items():
    print(f"{name}: defined in {', '.join(files)}")
print(f"{classes} classes, {len(twice)} of them defined twice")
sys.exit(1 if twice or not classes else 0)

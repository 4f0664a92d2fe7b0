#!/usr/bin/env python3
"""Writes names.json: all settings of LLaMA-Factory, Axolotl, TRL and PEFT, read from their classes: the names, and for
each name values that are not its default.

usage: make_names.py FOLDER...      # site-packages, or unpacked wheels of llamafactory, axolotl, trl, transformers, peft

The sources are parsed, not imported: none of them needs to be installed. src/config/foreign_names_test.cc checks that
the table knows every name, src/config/import_test.cc that `temper import` drops no value of them.
"""
import ast, json, pathlib, sys

# Of each tool: the classes whose fields are keys of its file. Bases are followed within the files.
TOOLS = {
    "LLaMA-Factory": (["llamafactory/hparams/*.py", "transformers/training_args*.py"],
                      ["ModelArguments", "DataArguments", "FinetuningArguments", "GeneratingArguments",
                       "EvaluationArguments", "ProfilerArguments", "Fp8Arguments", "RayArguments",
                       "Seq2SeqTrainingArguments"], ["llamafactory", "transformers"]),
    "Axolotl": (["axolotl/utils/schemas/*.py", "axolotl/integrations/*/args.py"],
                ["AxolotlInputConfig", "*Args"], ["axolotl"]),
    "TRL": (["trl/trainer/sft_config.py", "trl/trainer/base_config.py", "trl/trainer/model_config.py",
             "trl/scripts/utils.py", "transformers/training_args.py"],
            ["SFTConfig", "ModelConfig", "ScriptArguments", "DatasetMixtureConfig"], ["trl", "transformers"]),
    "PEFT": (["peft/tuners/lora/config.py"], ["LoraConfig"], ["peft"]),
}
# Classes whose fields are keys inside a setting: of an entry of dataset_info.json, of `datasets`.
INSIDE = {
    "LLaMA-Factory's dataset_info.json": ("llamafactory/data/parser.py", "DatasetAttr", "llamafactory"),
    "Axolotl's datasets": ("axolotl/utils/schemas/datasets.py", "SFTDataset", "axolotl"),
}
OFF = (None, False, 0, "", "no", [], {})


def default(value):
    """Of a field: a literal, or None where it is left open or computed."""
    if isinstance(value, ast.Call):
        given = [k.value for k in value.keywords if k.arg == "default"] or value.args[:1]
        value = given[0] if given else None
    try:
        return ast.literal_eval(value) if value else None
    except ValueError:
        return None


def values(annotation, fallback):
    """Some that the annotation allows and that are not the default. None stands for off."""
    text, found = ast.unparse(annotation), []
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            members = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            found += [ast.literal_eval(member) for member in members]
    words = set(text.replace("[", " ").replace("]", " ").replace("|", " ").replace(",", " ").split())
    if "bool" in words:
        found += [True, False]
    if "int" in words:
        found += [3 if fallback != 3 else 4, 0]
    if "float" in words:
        found += [0.25 if fallback != 0.25 else 0.75, 0.0]
    if "list" in words or "List" in words:
        found.append(["abc"])
    if "dict" in words or "Dict" in words:
        found.append({"abc": 1})
    if "str" in words or not found:
        found.append("abc")
    same = lambda a, b: a == b and type(a) == type(b)
    return [v for v in found if not same(v, fallback) and not (fallback in OFF and v in OFF)]


def classes(folders, patterns):
    found = {}
    for folder in folders:
        for pattern in patterns:
            for path in sorted(pathlib.Path(folder).glob(pattern)):
                for node in ast.walk(ast.parse(path.read_text())):
                    if not isinstance(node, ast.ClassDef):
                        continue
                    # LLaMA-Factory's TrainingArguments adds to transformers' class of that name.
                    bases, own = found.setdefault(node.name, ([], {}))
                    bases += [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != node.name]
                    own |= {s.target.id: (s.annotation, default(s.value)) for s in node.body
                            if isinstance(s, ast.AnnAssign) and "ClassVar" not in ast.unparse(s.annotation)}
    return found


def fields(name, found):
    bases, own = found.get(name, ([], {}))
    every = {}
    for base in reversed(bases):
        every |= fields(base, found)
    return every | own


def version(folders, package):
    for folder in folders:
        for info in pathlib.Path(folder).glob(f"{package}-*.dist-info"):
            return info.name.removesuffix(".dist-info").replace("-", " ")
    sys.exit(f"{package} is in none of {' '.join(folders)}")


folders = sys.argv[1:] or sys.exit(__doc__)
result = {}
for tool, (patterns, roots, packages) in TOOLS.items():
    found = classes(folders, patterns)
    every = {}
    for root in roots:
        matching = [name for name in found if name == root or root[0] == "*" and name.endswith(root[1:])
                    and name != "CompressionArgs"]  # a section of LLMCompressorArgs
        if not matching:
            sys.exit(f"{tool}: no class {root}")
        for name in matching:
            every |= fields(name, found)
    public = sorted(name for name in every if not name.startswith("_"))
    result[tool] = {"from": [version(folders, package) for package in packages], "names": " ".join(public),
                    "values": {name: values(*every[name]) for name in public},
                    "on": " ".join(name for name in public if every[name][1] is True or every[name][1] == "auto" and any(v is False for v in values(*every[name])))}
    print(tool, len(public), "names", file=sys.stderr)
for inside, (path, name, package) in INSIDE.items():
    every = fields(name, classes(folders, [path]))
    result[inside] = {"from": [version(folders, package)], "names": " ".join(sorted(every)),
                      "values": {name: values(*every[name]) for name in sorted(every)}}
path = pathlib.Path(__file__).with_name("names.json")
text = json.dumps(result, indent=1)
for entry in result.values():  # a line for each name
    for name, found in entry["values"].items():
        text = text.replace(f'"{name}": ' + json.dumps(found, indent=1).replace("\n", "\n   "), f'"{name}": ' + json.dumps(found))
path.write_text(text + "\n")

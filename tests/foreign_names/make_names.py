#!/usr/bin/env python3
"""Writes names.json: the names of all settings of LLaMA-Factory, Axolotl, TRL and PEFT, read from their classes.

usage: make_names.py FOLDER...      # site-packages, or unpacked wheels of llamafactory, axolotl, trl, transformers, peft

The sources are parsed, not imported: none of them needs to be installed. src/config/foreign_names_test.cc checks that
the table knows every name.
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


def classes(folders, patterns):
    found = {}
    for folder in folders:
        for pattern in patterns:
            for path in sorted(pathlib.Path(folder).glob(pattern)):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.ClassDef):
                        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                        fields = [s.target.id for s in node.body if isinstance(s, ast.AnnAssign)
                                  and "ClassVar" not in ast.unparse(s.annotation)]
                        found.setdefault(node.name, (bases, fields))
    return found


def fields(name, found):
    bases, own = found.get(name, ([], []))
    return set(own).union(*(fields(base, found) for base in bases)) if bases else set(own)


def version(folders, package):
    for folder in folders:
        for info in pathlib.Path(folder).glob(f"{package}-*.dist-info"):
            return info.name.removesuffix(".dist-info").replace("-", " ")
    sys.exit(f"{package} is in none of {' '.join(folders)}")


folders = sys.argv[1:] or sys.exit(__doc__)
result = {}
for tool, (patterns, roots, packages) in TOOLS.items():
    found = classes(folders, patterns)
    names = set()
    for root in roots:
        matching = [name for name in found if name == root or root[0] == "*" and name.endswith(root[1:])
                    and name != "CompressionArgs"]  # a section of LLMCompressorArgs
        if not matching:
            sys.exit(f"{tool}: no class {root}")
        for name in matching:
            names |= fields(name, found)
    public = sorted(name for name in names if not name.startswith("_"))
    result[tool] = {"from": [version(folders, package) for package in packages], "names": " ".join(public)}
    print(tool, len(public), "names", file=sys.stderr)
path = pathlib.Path(__file__).with_name("names.json")
path.write_text(json.dumps(result, indent=1) + "\n")

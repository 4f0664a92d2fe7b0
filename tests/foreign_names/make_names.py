#!/usr/bin/env python3
"""Writes names.json: all settings of LLaMA-Factory, Axolotl, TRL and PEFT, read from their classes: the names, and for
each name its default and values that are not its default. Writes the defaults to src/config/foreign_defaults.cc, too.

usage: make_names.py FOLDER...      # site-packages, or unpacked wheels of llamafactory, axolotl, trl, transformers, peft

The sources are parsed, not imported: none of them needs to be installed. src/config/foreign_names_test.cc checks that
the table knows every name, src/config/import_test.cc that `temper import` drops no value of them.
"""
import ast, json, pathlib, subprocess, sys

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
# Of TRL, by the task that Temper has for it: the fields that belong to its trainer alone.
TASKS_OF_TRL = {"dpo": ("DPOConfig", "trl/trainer/dpo_config.py"), "kto": ("KTOConfig", "trl/trainer/kto_config.py"),
                "orpo": ("ORPOConfig", "trl/experimental/orpo/orpo_config.py"),
                "simpo": ("CPOConfig", "trl/experimental/cpo/cpo_config.py"),
                "reward": ("RewardConfig", "trl/trainer/reward_config.py")}
# Configurations of TRL's trainers beside SFT, which a file can be for as well.
OTHER_TRAINERS = ["trl/trainer/*_config.py", "trl/experimental/*/*_config.py", "transformers/training_args.py",
                  "trl/scripts/utils.py"]
# Fields whose default is None and that the tool's own code then decides: where None is no "off".
DECIDED = {
    "LLaMA-Factory": ["greater_is_better", "packing"],  # parser.py: pt packs
    "Axolotl": [  # schemas/validation.py and config.py, utils/config/__init__.py, core/builders/causal.py
        "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "ddp_find_unused_parameters",
        "eval_sample_packing", "fp16", "greater_is_better", "lora_embedding_kernel", "lora_mlp_kernel", "lora_o_kernel",
        "lora_qkv_kernel", "pad_to_sequence_len", "remove_unused_columns", "tokenizer_use_mistral_common",
        "use_kernels"],
    "TRL": ["bf16", "completion_only_loss", "eval_packing", "greater_is_better"],  # base_config.py, sft_trainer.py
    "PEFT": [],
}


class Decided:
    """The default of a field that code decides: no value stands for it."""


def default(value):
    """Of a field: a literal, or Decided where it is computed."""
    if isinstance(value, ast.Call):
        given = [k.value for k in value.keywords if k.arg == "default"] or value.args[:1]
        made = [k.value for k in value.keywords if k.arg == "default_factory"]
        if not given and made:
            return {"list": [], "dict": {}}.get(ast.unparse(made[0]), Decided)
        value = given[0] if given else None
    if value is None or ast.unparse(value) in ("...", "MISSING"):
        return None
    try:
        return ast.literal_eval(value)
    except ValueError:
        pass
    constant = (ast.BinOp, ast.operator, ast.Constant)  # 768 * 768
    if all(isinstance(node, constant) for node in ast.walk(value)):
        return eval(ast.unparse(value))
    return Decided


def is_off(value, fallback):
    """A number that is 0 is off only where the default is a number, or a truth."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value == 0 and fallback is not None
    return value in (None, False, "", "no", [], {})


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
    if "None" in words and fallback is not Decided:
        found.append(None)
    same = lambda a, b: a == b and type(a) == type(b)
    off = fallback is not Decided and is_off(fallback, fallback if fallback is not None else 0)
    return [v for v in found if not same(v, fallback) and not (off and is_off(v, fallback))]


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
    for name in DECIDED[tool]:
        annotation, fallback = every[name]
        assert fallback is None, f"{tool}: {name} has a default"
        every[name] = (annotation, Decided)
    decided = [name for name in public if every[name][1] is Decided]
    result[tool] = {"from": [version(folders, package) for package in packages], "names": " ".join(public),
                    "values": {name: values(*every[name]) for name in public},
                    # Of the others the default is off: None, false, "", [] or {}.
                    "defaults": {name: every[name][1] for name in public if name not in decided and
                                 (type(every[name][1]) in (int, float) or every[name][1] not in (None, False, "", [], {}))},
                    "decided": " ".join(decided)}
    print(tool, len(public), "names", file=sys.stderr)
for inside, (path, name, package) in INSIDE.items():
    every = fields(name, classes(folders, [path]))
    result[inside] = {"from": [version(folders, package)], "names": " ".join(sorted(every)),
                      "values": {name: values(*every[name]) for name in sorted(every)}}
found = classes(folders, OTHER_TRAINERS)
known = set(result["TRL"]["names"].split())
result["TRL's other trainers"] = {
    "from": result["TRL"]["from"],
    "names": " ".join(sorted({field for name in found if name.endswith("Config") and name != "DatasetConfig"
                              for field in fields(name, found)} - known))}
for task, (name, path) in TASKS_OF_TRL.items():
    _, every = classes(folders, [path])[name]
    result[f"TRL's {task}"] = {"from": [version(folders, "trl")], "names": " ".join(sorted(every)),
                               "values": {name: values(*every[name]) for name in sorted(every)},
                               "defaults": {name: default for name, (_, default) in sorted(every.items())
                                            if default is not Decided}}
path = pathlib.Path(__file__).with_name("names.json")
text = json.dumps(result, indent=1)
for entry in result.values():  # a line for each name
    for name, found in [*entry.get("values", {}).items(), *entry.get("defaults", {}).items()]:
        text = text.replace(f'"{name}": ' + json.dumps(found, indent=1).replace("\n", "\n   "), f'"{name}": ' + json.dumps(found))
path.write_text(text + "\n")

table = pathlib.Path(__file__).parents[2] / "src/config/foreign_defaults.cc"
head, rest = table.read_text().split("// The table begins.\n")
lines = []
for tool, name in {"LLaMA-Factory": "kLlamaFactory", "Axolotl": "kAxolotl", "TRL": "kTrl"}.items():
    entry = result[tool]
    defaults = {name: json.dumps(value) for name, value in entry["defaults"].items()}
    defaults |= {name: "" for name in entry["decided"].split()}
    quoted = lambda text: json.dumps(text, ensure_ascii=False)
    lines.append(f"constexpr Default {name}DefaultValues[] = {{" +
                 ", ".join(f"{{{quoted(n)}, {quoted(v)}}}" for n, v in sorted(defaults.items())) + "};\n")
table.write_text(head + "// The table begins.\n" + "\n".join(lines) + "// The table ends.\n" +
                 rest.split("// The table ends.\n")[1])
subprocess.run(["clang-format-14", "-i", table], check=True)

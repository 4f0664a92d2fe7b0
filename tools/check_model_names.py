#!/usr/bin/env python3
"""Fails if a string literal outside src/model has a name that only models may use: a key of config.json, a module or a
tensor of a family. The names are read from the literals of src/model, so a new family adds its own.

usage: check_model_names.py ROOT
"""
import pathlib, re, sys

# Literals that may have such a name: help texts and other tools' settings, with the names that users know.
EXCEPTIONS = {
    "src/config/run_options.cc": {"q_proj", "embed_tokens", "lm_head", "gemma", "llama3", "mistral", "phi3",  # the latter as names of chat templates
                                  "router_aux_loss_coef", "output_router_logits"},
    "src/config/option.cc": {"q_proj", "lm_head"},
    "src/config/group_option.cc": {"lm_head"},
    "src/config/token_rows_option.cc": {"embed_tokens"},
    "src/config/validate.cc": {"embed_tokens"},
    "src/compile/run/run_frame.cc": {"router_aux_loss_coef"},
    "src/config/foreign_names.cc": {"lm_head", "router_aux_loss_coef"},
    "src/config/names_without_option.cc": {"rope_scaling"},
    "src/config/foreign_tools.cc": {"llama"},  # LLaMA-Factory
    "src/config/foreign_styles.cc": {"llama3"},  # a prompt style of Axolotl
    # model_type gives the kind of a tokenizer with vocab.json and merges.txt, as in transformers.
    "src/data/tokenizer/vocab_merges.cc": {"qwen2", "qwen3"},
    "src/plan/page_template.cc": {"w3"},  # www.w3.org
    # Names of GGUF files: llama.cpp's architectures whose tensors get types of their own, tokenizers and pre-tokenizers.
    "src/format/gguf/quant_mix.cc": {"qwen2", "olmo", "llama", "jais2", "falcon"},
    "src/data/tokenizer/gguf_vocabulary.cc": {"gpt2", "llama"},
    "src/data/tokenizer/gguf_pre_tokenizer.cc": {"llama", "llama3", "qwen2", "falcon", "falcon3", "starcoder", "phi", "olmo", "exaone", "mpt"},
    "src/data/tokenizer/gguf_tokenizer.cc": {"gpt2", "llama"},
}
# Files of src/model that are not families: they name values of the graph and settings of PEFT and bitsandbytes.
NO_FAMILIES = {"forward.cc", "forward.h", "gguf_config.cc", "gguf_description.cc", "gguf_missing.cc", "gguf_parts.cc", "initialize.cc", "initialize.h", "lora.cc", "lora.h", "lora_layers.cc", "lora_layers.h",
               "lora_names.cc", "lora_names.h", "lora_parameters.cc", "lora_parameters.h", "lora_selector.cc", "lora_selector.h",
               "lora_rewrite.cc", "lora_rewrite.h", "model.cc", "model.h", "mxfp4_experts.cc", "mxfp4_experts.h", "published_quantisation.cc", "published_quantisation.h", "quantisation_config.cc", "quantisation_config.h",
               "row_rewrite.cc", "row_rewrite.h", "row_selector.cc", "row_selector.h",
               "trainable_set.cc", "trainable_set.h"}
# Attributes of ops, some with the name of a key; an op; the key that identifies families; words that are also families; an option that MPT's files have, too.
OURS = {"head_dim", "model_type", "top_groups", "inv_freq", "long_inv_freq", "document_length", "opt", "glm", "layer_norm", "plus_one", "max_seq_len"}

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
RAW = re.compile(r'R"(\w*)\(\n(.*?)\)\1"', re.S)


def literals(path):
    """The literals of a source with their lines, without includes and comments."""
    text = path.read_text()
    # Raw ones of several lines: each line counts as a literal. The rest of the text keeps its lines.
    for raw in RAW.finditer(text):
        first = text.count("\n", 0, raw.start(2)) + 1
        yield from enumerate(raw[2].split("\n"), first)
    text = RAW.sub(lambda raw: '""' + "\n" * raw[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#include", "//")):
            continue
        # A comment after code: from the first // outside a literal on.
        code = re.sub(r'("(?:[^"\\]|\\.)*")|//.*', lambda m: m[1] or "", line)
        for literal in STRING.findall(code):
            yield number, literal.replace("llama.cpp", "")  # a program


def sources(folder):
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".h", ".cc", ".cu", ".inc") and not re.search(r"_(test|fuzz)\.cc$|_for_test\.h$", path.name):
            yield path


root = pathlib.Path(sys.argv[1]).resolve()
models = root / "src/model"
names, parts = set(), set()
for path in sources(models):
    if path.name in NO_FAMILIES:
        continue
    for _, literal in literals(path):
        if re.search(r"[^\w./{}-]", literal):  # a message
            continue
        pieces = [p for p in re.split(r"[./{}]", literal) if re.fullmatch(r"_?[a-z][a-z0-9_]*", p)]
        names |= {p for p in pieces if "_" in p or re.search(r"[a-z]\d$", p)}
        if "." in literal:
            parts |= set(pieces)
for line in re.findall(r"^TEMPER_(?:FAMILY|MULTIMODAL)\((\w+), ([\w-]+),", (models / "family_list.inc").read_text(), re.M):
    names |= set(line)
names -= OURS
parts -= {"model", "weight", "bias"}
if "num_hidden_layers" not in names or "layers" not in parts:
    sys.exit("check_model_names.py: cannot find the expected names in src/model")

faults = 0
for path in sources(root / "src"):
    if models in path.parents:
        continue
    file = str(path.relative_to(root))
    for number, literal in literals(path):
        found = set(re.findall(r"\w+", literal)) & names
        # "layers.", also in a regular expression over names.
        found |= {p for p in re.findall(r"(\w+)\\*\.", literal) if p in parts and " " not in literal}
        found -= EXCEPTIONS.get(file, set())
        if found:
            faults += 1
            print(f'{file}:{number}: "{literal}" has a name of models ({", ".join(sorted(found))}): let the model state it')
if faults:
    sys.exit(1)
print(f"{len(names)} names of models: none outside of src/model")

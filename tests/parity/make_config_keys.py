#!/usr/bin/env python3
"""The keys of transformers' configuration classes, of every family in src/model/family_list.inc: config_keys.json, by
which src/model/config_keys_test.cc asks for each key whether Temper reads it, refuses it, or may pass over it.

Keys are those of the class with their defaults, other names that the class takes for them (attribute_map), those of
rope_parameters, and what the code of the model asks its configuration for besides. "changes" has of each family the keys
that change the logits of a tiny model of model_zoo.py, measured: no such key may be passed over.
Usage: make_config_keys.py [--check]
"""

import importlib
import inspect
import json
import pathlib
import re
import sys

import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import RopeParameters

import model_zoo

HERE = pathlib.Path(__file__).parent
OUT = HERE / "config_keys.json"
FAMILIES = HERE.parent.parent / "src/model/family_list.inc"


def asked(model_type):
    """What modeling_<type>.py reads of a configuration."""
    module = importlib.import_module(transformers.CONFIG_MAPPING[model_type].__module__)
    path = pathlib.Path(module.__file__.replace("configuration_", "modeling_"))
    if not path.exists():  # a class that is another's, under other names
        path = pathlib.Path(inspect.getfile(transformers.AutoModelForCausalLM._model_mapping[
            transformers.CONFIG_MAPPING[model_type]]))
    code = path.read_text()
    names = re.findall(r"config\.([a-z]\w*)\b(?!\()", code) + re.findall(r'getattr\((?:self\.)?config, "(\w+)"', code)
    methods = {n for n, _ in inspect.getmembers(transformers.PretrainedConfig, inspect.isroutine)}
    return set(names) - methods


def as_saved(value):
    """JSON has no infinity: files have what transformers writes in its place."""
    if isinstance(value, (list, tuple)):
        return [as_saved(v) for v in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def keys(model_type):
    config = transformers.CONFIG_MAPPING[model_type]()
    kept = ("rope_parameters", "text_config", "vision_config")
    values = {k: as_saved(v) for k, v in config.to_dict().items() if not isinstance(v, dict) or k in kept}
    for other, name in config.attribute_map.items():
        values[other] = values.get(name)
    nested = {name for name in values if name.endswith("_config")}
    # The code of a multimodal class reads what its text model has, too.
    for name in set() if nested else {n for n in asked(model_type) if not n.endswith("_config")}:
        values.setdefault(name, None)
    for name in nested:
        del values[name]
    return dict(sorted(values.items()))


def other_values(key, value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value, value + 1, max(1, value // 2), 1]
    if isinstance(value, float):
        return [2 * value + 0.25, 0.5]
    if isinstance(value, str):
        return ["gelu", "relu", "silu", "relu2"]
    return [True, 2, 0.5] if value is None else []


def logits_of(name, changed):
    """Of a model of model_zoo.py with these changes to its settings. Weights of the same name and shape are the same."""
    kept = model_zoo.MODELS[name]
    model_zoo.MODELS[name] = (kept[0], {**kept[1], **changed})
    try:
        model = model_zoo.build(name)
        with torch.no_grad():
            return model(input_ids=torch.arange(3, 15)[None], use_cache=False).logits.numpy()
    finally:
        model_zoo.MODELS[name] = kept


def changes(model_type, keys_of_class):
    names = [name for name, (family, _) in model_zoo.MODELS.items() if family == model_type]
    found = set()
    for name in names[:2]:
        before = logits_of(name, {})
        family, settings = model_zoo.MODELS[name]
        settings = {**model_zoo.SIZES.get(family, model_zoo.LLAMA), **settings}
        for key, default in keys_of_class.items():
            if key in found or key in ("model_type", "dtype", "vocab_size"):
                continue
            for value in other_values(key, settings.get(key, default)):
                try:
                    after = logits_of(name, {key: value})
                except Exception:  # a value that the class refuses, or cannot compute with
                    continue
                if after.shape != before.shape or np.abs(after - before).max() > 1e-4 * np.abs(before).max():
                    found.add(key)
                    break
    return sorted(found)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    lines = re.findall(r"^TEMPER_(?:FAMILY|MULTIMODAL)\((\w+), ([\w-]+),", FAMILIES.read_text(), re.M)
    families = [f"    {json.dumps(name)}: {json.dumps(keys(kind))}" for name, kind in lines]
    rope = sorted(RopeParameters.__annotations__)
    measured = [f"    {json.dumps(name)}: {json.dumps(changes(kind, keys(kind)))}" for name, kind in lines
                if any(family == kind for family, _ in model_zoo.MODELS.values())]
    text = '{\n  "transformers": %s,\n  "rope_parameters": %s,\n  "families": {\n%s\n  },\n  "changes": {\n%s\n  }\n}\n' % (
        json.dumps(transformers.__version__), json.dumps(rope), ",\n".join(families), ",\n".join(measured))
    if "--check" in sys.argv:
        sys.exit(0 if OUT.read_text() == text else f"{OUT} is not what transformers says now: run this script")
    OUT.write_text(text)


if __name__ == "__main__":
    main()

"""Writes auto_goldens.json: ids that AutoTokenizer of transformers 5 gives for texts of goldens.json, also with special
tokens in them, for every tokenizer of the folder of outside test data. Only ids go into it.

    pip install transformers && TEMPER_TEST_DATA=... python tests/tokenizer/make_auto_goldens.py

Of a LlamaTokenizer transformers 5 reads only vocabulary and merges. Temper uses its tokenizer.json, where that finds all
special tokens, and exports it under a class that transformers reads unchanged: "ids" are this class's. "special" are the
special tokens among the ids that the folder's own class gives. Characters that the vocabulary lacks are dropped by that
class; Temper gives them the unknown token that tokenizer.json names, so "ids" of "unk" cases have it.
"""
import json
import os
import shutil
import tempfile

import transformers
from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ["TEMPER_TEST_DATA"]
with open(os.path.join(HERE, "goldens.json")) as f:
    TEXTS = json.load(f)


def data(folder, **names):
    return {target.replace("__", "."): f"data:{folder}/{source}" for target, source in names.items()}


def ids_of(files, config, texts, cls=None, unk=False, **options):
    with tempfile.TemporaryDirectory() as folder:
        for target, source in files.items():
            shutil.copyfile(os.path.join(DATA, source.removeprefix("data:")), os.path.join(folder, target))
        for target, content in config.items():
            with open(os.path.join(folder, target), "w") as f:
                json.dump(content, f)
        if cls:
            path = os.path.join(folder, "tokenizer_config.json")
            with open(path) as f:
                changed = dict(json.load(f), tokenizer_class=cls)
            with open(path, "w") as f:
                json.dump(changed, f)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if unk:
            tokenizer.backend_tokenizer.model.unk_token = tokenizer.unk_token
        ids = [tokenizer(t, **options)["input_ids"] for t in texts]
        return ids, {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}, tokenizer


def case(name, files, config, tokens, cls=None, unk=False):
    texts = [TEXTS["texts"][i] for i in TEXTS["short"]] + [t.format(*tokens) for t in TEXTS["special_texts"]]
    ids, _, tokenizer = ids_of(files, config, texts, cls, unk)
    out = {"name": name, "files": files, "config": config, "tokens": tokens, "ids": ids, "eos": tokenizer.eos_token_id}
    if cls:
        own, special, _ = ids_of(files, config, texts, None, add_special_tokens=False)
        out["special"] = [[i for i in row if i in special] for row in own]
    return out


def cases():
    for folder in ("tinystories-656k", "tinystories-656k-bf16"):
        yield case(folder, data(f"models/{folder}", tokenizer__json="tokenizer.json", tokenizer_config__json="tokenizer_config.json",
                                special_tokens_map__json="special_tokens_map.json"), {}, ["<|start_story|>", "<|end_story|>"], unk=True)
    fast = "PreTrainedTokenizerFast"
    yield case("Phi 3", data("tokenizers/phi-3-mini", tokenizer__json="tokenizer.json", tokenizer_config__json="tokenizer_config.json"),
               {}, ["<|user|>", "<|end|>"], fast)
    # Its tokenizer.json lacks a merge: transformers reads only its tokenizer.model, as the class does it.
    llama2 = case("Llama 2", data("tokenizers/llama2", tokenizer__model="tokenizer.model",
                                  tokenizer_config__json="tokenizer_config.json"), {}, ["<s>", "</s>"], "LlamaTokenizer")
    del llama2["ids"]
    yield llama2
    pair = {"vocab__json": "vocab.json", "merges__txt": "merges.txt"}
    gpt2 = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    yield case("GPT-2", data("tokenizers/gpt2", **pair), {"tokenizer_config.json": gpt2}, ["<|endoftext|>", "<|endoftext|>"])
    opt = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    yield case("OPT", data("tokenizers/opt", **pair), {"tokenizer_config.json": opt}, ["</s>", "<pad>"])
    qwen = data("tokenizers/qwen2", **pair)
    yield case("Qwen 2", dict(qwen, **data("tokenizers/qwen2", added_tokens__json="added_tokens.json",
                                           special_tokens_map__json="special_tokens_map.json",
                                           tokenizer_config__json="tokenizer_config.json")), {}, ["<|im_start|>", "<|im_end|>"])
    for name in ("qwen2.5", "qwen3"):
        yield case(name, dict(qwen, **data(f"tokenizers/{name}", tokenizer_config__json="tokenizer_config.json")), {},
                   ["<|im_start|>", "<tool_call>"])
    yield case("torchtune", data("tokenizers/torchtune-tiny", tokenizer__json="tokenizer.json",
                                 tokenizer_config__json="tokenizer_config.json"), {},
               ["<|begin_of_sentence|>", "<|end_of_sentence|>"])
    qwen_class = {"tokenizer_class": fast, "eos_token": "<|im_end|>"}
    yield case("torchtune, Qwen 2 pattern", data("tokenizers/torchtune-tiny", tokenizer__json="tiny_bpe_tokenizer.json"),
               {"tokenizer_config.json": qwen_class}, ["<|im_start|>", "<|im_end|>"])
    yield case("Gemma, cropped", data("tokenizers/torchtune-tiny", tokenizer__json="tokenizer_gemma_cropped.json"),
               {"tokenizer_config.json": {"tokenizer_class": fast, "eos_token": "<eos>"}}, ["<bos>", "<eos>"])


out = {"made_with": {"transformers": transformers.__version__}, "cases": list(cases())}
with open(os.path.join(HERE, "auto_goldens.json"), "w") as f:
    f.write('{"made_with": ' + json.dumps(out["made_with"]) + ', "cases": [\n')
    f.write(",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in out["cases"]) + "\n]}\n")

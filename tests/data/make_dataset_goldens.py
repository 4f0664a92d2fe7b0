#!/usr/bin/env python3
"""Writes dataset_goldens.json: real data sets tokenised by real tokenizers, with Hugging Face's `tokenizers` and
Google's `sentencepiece`.

    pip install tokenizers sentencepiece && python tests/data/make_dataset_goldens.py DATA_FOLDER

DATA_FOLDER is the folder of TEMPER_TEST_DATA. Per case: rows, tokens, supervised tokens, borders that a token would
have crossed, a 64-bit FNV-1a hash over (token, flag) of all samples in order, unknown tokens and the characters that
most often became one. src/data/dataset_real_test.cc compares.
"""
import collections
import json
import os
import sys
import types

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

MASK = (1 << 64) - 1


class Hash:
    def __init__(self):
        self.value = 0xCBF29CE484222325

    def add(self, number, size):
        for byte in number.to_bytes(size, "little"):
            self.value = ((self.value ^ byte) * 0x100000001B3) & MASK


# Like transformers' Qwen2Converter.
QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                 r"|\s+(?!\S)|\s+")


class SentencePiece:
    """A SentencePiece model with what is used here of a `tokenizers` tokenizer."""

    def __init__(self, path):
        self.model = sentencepiece.SentencePieceProcessor(model_file=path)
        self.token_to_id = self.model.piece_to_id

    def encode(self, text, add_special_tokens=True):
        front = [self.model.bos_id()] if add_special_tokens else []
        return types.SimpleNamespace(ids=front + self.model.encode(text))


def load(folder):
    if folder.endswith(".model"):
        return SentencePiece(folder)
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    bpe = models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"))
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    added = json.load(open(os.path.join(folder, "added_tokens.json"), encoding="utf-8"))
    for token, _ in sorted(added.items(), key=lambda item: item[1]):
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    return tokenizer


def encode_behind_newline(tokenizer, text):
    head = tokenizer.encode("\n", add_special_tokens=False).ids
    ids = tokenizer.encode("\n" + text, add_special_tokens=False).ids
    if ids[: len(head)] == head:
        return ids[len(head):]
    return tokenizer.encode(text, add_special_tokens=False).ids


def prompt_sample(tokenizer, eos, prompt, completion):
    """The prompt's tokens are those of the prompt alone; returns ids, flags, whether the border was split."""
    head = tokenizer.encode(prompt).ids
    whole = tokenizer.encode(prompt + completion).ids
    split = whole[: len(head)] != head
    if split:
        whole = head + encode_behind_newline(tokenizer, completion)
    whole.append(eos)
    return whole, [0] * len(head) + [1] * (len(whole) - len(head)), split


def text_samples(tokenizer, eos, text, window):
    ids = tokenizer.encode(text).ids + [eos]
    for begin in range(0, len(ids) - 1, window - 1):
        part = ids[begin: begin + window]
        yield part, [0] + [1] * (len(part) - 1), False


def question_answer(path):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        apart = row["question"][-1:].isspace() or row["answer"][:1].isspace()
        yield row["question"], ("" if apart else " ") + row["answer"]


def alpaca(path):
    for row in json.load(open(path, encoding="utf-8")):
        prompt = row["instruction"] + ("\n\n" + row["input"] if row.get("input") else "")
        apart = not prompt or prompt[-1].isspace() or not row["output"] or row["output"][0].isspace()
        yield prompt, ("" if apart else " ") + row["output"]


def texts_of_tokens(tokenizer, text):
    if isinstance(tokenizer, SentencePiece):
        return zip(tokenizer.model.encode(text), tokenizer.model.encode(text, out_type=str))
    encoded = tokenizer.encode(text)
    return ((token, text[begin:end]) for token, (begin, end) in zip(encoded.ids, encoded.offsets))


def most_unknown(tokenizer, unknown, texts):
    found = collections.Counter()
    for text in texts:
        for token, characters in texts_of_tokens(tokenizer, text):
            if token == unknown:
                found.update(characters)
    return sorted(found, key=lambda character: (-found[character], character))[:8]


def summary(samples, window, unknown):
    out = dict.fromkeys(["samples", "tokens", "supervised", "split_borders", "cut_rows", "dropped_rows", "unknown"], 0)
    fnv = Hash()
    for ids, flags, split in samples:
        out["split_borders"] += split
        if len(ids) > window:
            out["cut_rows"] += 1
            ids, flags = ids[:window], flags[:window]
        if 1 not in flags:
            out["dropped_rows"] += 1
            continue
        out["samples"] += 1
        out["tokens"] += len(ids)
        out["supervised"] += sum(flags)
        out["unknown"] += ids.count(unknown)
        for token, flag in zip(ids, flags):
            fnv.add(token, 4)
            fnv.add(flag, 1)
    out["fnv1a"] = f"{fnv.value:016x}"
    return out


def main():
    root = sys.argv[1]
    tokenizers = {  # with their ends, and the token of what they do not know
        "models/tinystories-656k": ("<|end_story|>", "<unk>"),
        "tokenizers/torchtune-tiny/m.model": ("</s>", "<unk>"),
        "tokenizers/phi-3-mini": ("<|endoftext|>", None),
        "tokenizers/qwen2": ("<|im_end|>", None),
    }
    cases = []
    for folder, (eos_text, unknown_text) in tokenizers.items():
        tokenizer = load(os.path.join(root, folder))
        eos = tokenizer.token_to_id(eos_text)
        unknown = tokenizer.token_to_id(unknown_text) if unknown_text else None

        def add(data, window, samples, texts):
            cases.append({"tokenizer": folder, "data": data, "max_seq_len": window, **summary(samples, window, unknown),
                          "unknown_characters": most_unknown(tokenizer, unknown, texts) if unknown_text else []})

        for data, rows, window in [
            ("datasets/gsm8k/test.jsonl", question_answer, 2048),
            ("datasets/gsm8k/test.jsonl", question_answer, 160),
            ("datasets/torchtune/alpaca_tiny.json", alpaca, 2048),
            ("datasets/llama-factory/identity.json", alpaca, 2048),
        ]:
            if folder.endswith(".model") and "gsm8k" in data:
                continue  # sentencepiece takes seconds for what the others show
            pairs = list(rows(os.path.join(root, data)))
            add(data, window, (prompt_sample(tokenizer, eos, p, c) for p, c in pairs), (p + c for p, c in pairs))
        if folder.endswith(".model"):
            continue
        data = "datasets/text/tinyshakespeare.txt"
        text = open(os.path.join(root, data), encoding="utf-8", newline="").read().replace("\r\n", "\n")
        add(data, 256, text_samples(tokenizer, eos, text, 256), [text])
    with open(os.path.join(os.path.dirname(__file__), "dataset_goldens.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, indent=1)
        out.write("\n")


main()

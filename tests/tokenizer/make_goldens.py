"""Writes goldens.json: ids that transformers and tokenizers give for the texts below. Only ids and these texts go into it.

    pip install 'transformers==4.46.3' sentencepiece protobuf
    TEMPER_TEST_DATA=... python tests/tokenizer/make_goldens.py

Without TEMPER_TEST_DATA the cases on outside data are left out.
"""
import json
import os
import shutil
import tempfile

import transformers
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ.get("TEMPER_TEST_DATA")

TEXTS = [
    "", " ", "   ", "a", "Hello world", " Hello  world ", "Hello, world!\n", "the cat and  the   cat    sat\t\ton\n\n\nit \n",
    "I don't know, they've said it's what WE'LL do. I'D say: 'tis John's", "’s ’T 's'S 'ſ", "x=1;y=22;z=333;w=4444;v=55555;n=1234567890",
    "3.14159 ½ Ⅷ ² ٣٤٥", "def f(x):\n    return x ** 2  # squared\n", "for (int i = 0; i < 10; ++i) {\r\n\tsum += a[i];\r\n}",
    "http://example.org/a?b=c&d=%20#e C:\\dir\\file.txt", "émigré naïve Ångström e\u0301 A\u030a ﬁne", "Größe ÄÖÜ straße İstanbul ΣΊΣΥΦΟΣ",
    "Кошка спит на окне.", "猫は窓で寝ています。", "고양이가 창가에서 잔다. 각", "猫在窗边睡觉，它很安静！", "مرحبا بالعالم", "שלום עולם", "क्षि नमस्ते दुनिया",
    "😀 🚀👨‍👩‍👧‍👦 🇩🇪 ☃️", "a\u00a0b\u3000c\u2003d\u180ee\u0085f\u200bg\u2028h", "\ufeffBOM \u0000nul\u0001", "▁ ▁▁under▁line _ __", "Ġ Ċ <0x0A> <0xE2>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", " " * 40 + "x" + "\n" * 9 + "y",
    "snake_case CamelCase kebab-case UPPER", "--- *** ==> <-- ... ?! “quoted” ‘single’ — dash",
    "q\u0323\u0307 q\u0307\u0323 \u0301alone", "\U0001d504\U0001d505 \U00020000\U0002a6d6",
]
SPECIAL = ["{0}Hello{1}", "Hello {0} world {1}\n next", "a{0}{0} b", "{1}  {0}x{1} ", " {0}", "▁{0}", "{0}.{1}!"]
SHORT = [0, 2, 4, 5, 7, 8, 10, 12, 15, 16, 18, 20, 24, 25, 27, 30, 32, 33]  # texts for the variants


def texts_for(tokens, which=None):
    chosen = TEXTS if which is None else [TEXTS[i] for i in which]
    return chosen + [t.format(*tokens) for t in SPECIAL] if tokens else chosen


def transformers_case(name, files, config, cls, tokens):
    """A folder of outside or own files, read by a slow transformers tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        for target, source in files.items():
            shutil.copy(source, os.path.join(folder, target))
        for target, content in config.items():
            with open(os.path.join(folder, target), "w") as f:
                json.dump(content, f)
        tokenizer = getattr(transformers, cls).from_pretrained(folder)
        texts = texts_for(tokens)
        return {"name": name, "files": {k: relative(v) for k, v in files.items()}, "config": config, "tokens": tokens,
                "ids": [tokenizer.encode(t) for t in texts],
                "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}


def tokenizers_case(name, path, tokens):
    tokenizer = Tokenizer.from_file(path)
    return {"name": name, "files": {"tokenizer.json": relative(path)}, "config": {}, "tokens": tokens,
            "ids": [tokenizer.encode(t).ids for t in texts_for(tokens)]}


def variant(base, name, patch, tokens=("<|sep|>", "kobold")):
    """A tiny tokenizer with other parts (JSON merge patch)."""
    with open(os.path.join(HERE, base, "tokenizer.json")) as f:
        document = json.load(f)

    def merge(target, source):
        for key, value in source.items():
            if isinstance(value, dict) and isinstance(target.get(key), dict):
                merge(target[key], value)
            else:
                target[key] = value
    # Steps are replaced whole, models are patched.
    for key, value in patch.items():
        if key == "model":
            merge(document[key], value)
        else:
            document[key] = value
    tokenizer = Tokenizer.from_str(json.dumps(document))
    texts = texts_for(list(tokens), SHORT)
    ids = [tokenizer.encode(t).ids for t in texts]
    return {"name": name, "base": base, "patch": patch, "tokens": list(tokens), "ids": ids,
            "text": [tokenizer.decode(i, skip_special_tokens=False) for i in ids]}


def relative(path):
    for root, tag in ((HERE, "tests"), (DATA, "data")):
        if root and path.startswith(root):
            return tag + ":" + os.path.relpath(path, root)
    raise ValueError(path)


def own(*parts):
    return os.path.join(HERE, *parts)


def cases():
    yield tokenizers_case("tiny byte-level", own("tiny_byte_level", "tokenizer.json"), ["<|sep|>", "kobold"])
    yield tokenizers_case("tiny Llama 2 style", own("tiny_llama2", "tokenizer.json"), ["<s>", "</s>"])
    yield transformers_case("tiny GPT-2 files", {n: own("tiny_gpt2", n) for n in ("vocab.json", "merges.txt", "tokenizer_config.json")},
                            {}, "GPT2Tokenizer", ["<|begin|>", "<|end|>"])
    model = {"tokenizer.model": own("tiny_sentencepiece", "tokenizer.model")}
    with open(own("tiny_sentencepiece", "tokenizer_config.json")) as f:
        config = json.load(f)
    yield transformers_case("tiny SentencePiece", model, {"tokenizer_config.json": config}, "LlamaTokenizer", ["<s>", "</s>"])
    yield transformers_case("tiny SentencePiece, legacy, EOS", model,
                            {"tokenizer_config.json": dict(config, legacy=True, add_eos_token=True)}, "LlamaTokenizer", ["<s>", "</s>"])
    if not DATA:
        return
    data = lambda *parts: os.path.join(DATA, *parts)
    yield tokenizers_case("Phi 3", data("tokenizers/phi-3-mini/tokenizer.json"), ["<|user|>", "</s>"])
    yield tokenizers_case("TinyStories", data("models/tinystories-656k/tokenizer.json"), ["<|start_story|>", "<|end_story|>"])
    yield tokenizers_case("torchtune, Llama 3 pattern", data("tokenizers/torchtune-tiny/tokenizer.json"), [])
    yield tokenizers_case("torchtune, Qwen 2 pattern", data("tokenizers/torchtune-tiny/tiny_bpe_tokenizer.json"), ["<|im_start|>", "<|im_end|>"])
    yield tokenizers_case("Gemma, cropped", data("tokenizers/torchtune-tiny/tokenizer_gemma_cropped.json"), ["<bos>", "<eos>"])
    pair = lambda folder: {n: data(folder, n) for n in ("vocab.json", "merges.txt")}
    yield transformers_case("GPT-2", pair("tokenizers/gpt2"), {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}},
                            "GPT2Tokenizer", ["<|endoftext|>", "<|endoftext|>"])
    opt = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>",
           "add_bos_token": True}
    yield transformers_case("OPT", pair("tokenizers/opt"), {"tokenizer_config.json": opt}, "GPT2Tokenizer", ["</s>", "<pad>"])
    qwen = {n: data("tokenizers/qwen2", n) for n in
            ("vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")}
    yield transformers_case("Qwen 2", qwen, {}, "Qwen2Tokenizer", ["<|im_start|>", "<|im_end|>"])
    llama = {"tokenizer.model": data("tokenizers/llama2/tokenizer.model")}
    with open(data("tokenizers/llama2/tokenizer_config.json")) as f:
        config = {"add_bos_token": True, "add_eos_token": False, "tokenizer_class": "LlamaTokenizer"}
    for legacy in (True, False):
        yield transformers_case(f"Llama 2, legacy {legacy}", llama, {"tokenizer_config.json": dict(config, legacy=legacy)},
                                "LlamaTokenizer", ["<s>", "</s>"])


def metaspace(**more):
    return dict({"type": "Metaspace", "replacement": "▁"}, **more)


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normalize(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def variants():
    byte = "tiny_byte_level"
    raw = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    words = dict(raw, use_regex=True)
    yield variant(byte, "prefix space", {"pre_tokenizer": dict(words, add_prefix_space=True)})
    yield variant(byte, "no regex: one word", {"pre_tokenizer": raw})
    yield variant(byte, "ignore_merges", {"model": {"ignore_merges": True}})
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    yield variant(byte, "Llama 3", {"pre_tokenizer": sequence(split({"Regex": llama3}, "Isolated"), raw),
                                    "model": {"ignore_merges": True}})
    o200k = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    yield variant(byte, "o200k", {"pre_tokenizer": sequence(split({"Regex": o200k}, "Isolated"), raw)})
    yield variant(byte, "digits one by one", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, words)})
    yield variant(byte, "digits together", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, words)})
    yield variant(byte, "Falcon", {"pre_tokenizer": sequence({"type": "Punctuation", "behavior": "Contiguous"}, words,
                                                             {"type": "Digits", "individual_digits": False},
                                                             split({"Regex": "[0-9][0-9][0-9]"}, "Isolated"))})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield variant(byte, "split " + behavior, {"pre_tokenizer": sequence(split({"String": " "}, behavior), raw)})
        yield variant(byte, "split a letter class, inverted, " + behavior,
                      {"pre_tokenizer": sequence(split({"Regex": r"\w+|[^\w\s]"}, behavior, True), raw)})
    yield variant(byte, "empty matches", {"pre_tokenizer": sequence(split({"Regex": r"\s*"}, "Isolated"), raw)})
    yield variant(byte, "scripts and hexadecimals", {"pre_tokenizer": sequence(split({"Regex": r"\p{Han}+|\p{^Greek}\h+|[\h]$"}, "Isolated"), raw)})
    yield variant(byte, "Whitespace", {"pre_tokenizer": sequence({"type": "Whitespace"}, raw)})
    yield variant(byte, "WhitespaceSplit", {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, raw)})
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield variant(byte, form, {"normalizer": {"type": form}})
    yield variant(byte, "strip", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}})
    yield variant(byte, "strip right", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}})
    yield variant(byte, "replace", normalize({"type": "Replace", "pattern": {"Regex": r"\s+|l+"}, "content": "_"},
                                             {"type": "Replace", "pattern": {"String": "th"}, "content": ""}))
    yield variant(byte, "Roberta", {"post_processor": {"type": "RobertaProcessing", "sep": ["<|end|>", 1], "cls": ["<|begin|>", 0],
                                                       "trim_offsets": True, "add_prefix_space": False}})
    yield variant(byte, "Bert", {"post_processor": {"type": "BertProcessing", "sep": ["<|end|>", 1], "cls": ["<|begin|>", 0]}})
    template = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"x": {"id": "x", "ids": [1, 2], "tokens": ["<|end|>", "<|pad|>"]}}}
    yield variant(byte, "processors in sequence", {"post_processor": {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template]}})

    def added(content, number, **flags):
        return dict({"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                     "normalized": False, "special": False}, **flags)
    # Ids of tokens that the vocabulary lacks follow it: 640 and on.
    for name, flags in (("plain", {}), ("single_word", {"single_word": True}), ("lstrip", {"lstrip": True}),
                        ("rstrip", {"rstrip": True}), ("both", {"lstrip": True, "rstrip": True}), ("special", {"special": True})):
        yield variant(byte, "added " + name, {"added_tokens": [added("cat", 640, **flags), added("cat and", 641, **flags), added(" on", 642, **flags)]},
                      ("cat", "cat and"))
    yield variant(byte, "added normalized", {"normalizer": {"type": "Lowercase"},
                                             "added_tokens": [added("HELLO", 640, normalized=True), added("World", 641)]}, ("World", "hello"))

    llama = "tiny_llama2"
    tokens = ("<s>", "</s>")
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            step = metaspace(prepend_scheme=scheme, split=cut)
            yield variant(llama, f"metaspace {scheme} {cut}", {"normalizer": None, "pre_tokenizer": step, "decoder": step}, tokens)
    yield variant(llama, "normalized special tokens", {"added_tokens": [
        {"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
        for i, c in enumerate(["<unk>", "<s>", "</s>"])]}, tokens)
    yield variant(llama, "unknown, fused", {"model": {"byte_fallback": False, "fuse_unk": True}}, tokens)
    yield variant(llama, "unknown, one by one", {"model": {"byte_fallback": False, "fuse_unk": False}}, tokens)
    yield variant(llama, "unknown, dropped", {"model": {"byte_fallback": False, "unk_token": None}}, tokens)
    yield variant(llama, "no steps at all", {"normalizer": None, "decoder": None}, tokens)


out = {"made_with": {"transformers": transformers.__version__, "tokenizers": __import__("tokenizers").__version__,
                     "sentencepiece": __import__("sentencepiece").__version__},
       "texts": TEXTS, "special_texts": SPECIAL, "short": SHORT, "cases": list(cases()), "variants": list(variants())}
with open(os.path.join(HERE, "goldens.json"), "w") as f:
    f.write("{\n")
    for n, (key, value) in enumerate(out.items()):
        f.write(json.dumps(key) + ": ")
        if key in ("cases", "variants"):
            f.write("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in value) + "\n]")
        else:
            f.write(json.dumps(value, ensure_ascii=True))
        f.write(",\n" if n + 1 < len(out) else "\n}\n")

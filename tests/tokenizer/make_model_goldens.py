"""Trains tiny Unigram, WordPiece and tiktoken tokenizers, and writes model_goldens.json: 2,000 texts, and for each
tokenizer a hash of the ids that tokenizers, sentencepiece or tiktoken give each text, and of the text of these ids.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 protobuf
    TEMPER_TEST_DATA=... python tests/tokenizer/make_model_goldens.py [--all-characters]

--all-characters: Unigram models get SentencePiece's whole table of characters (300 KB), to compare by hand; otherwise
those below U+0530 and the wide and narrow ones. Without TEMPER_TEST_DATA the cases on outside data are left out.
"""
import base64
import json
import os
import random
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from train_tiny import HERE, TEXT

DATA = os.environ.get("TEMPER_TEST_DATA")
LINES = [line for line in TEXT.split("\n") if line]
SCRIPTS = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0x980),
           (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x20D0, 0x2200), (0x3040, 0x3100),
           (0x3130, 0x3190), (0x3400, 0x3500), (0x4E00, 0x5000), (0xAC00, 0xAD00), (0xF900, 0xFA00), (0xFB00, 0xFB50),
           (0xFE00, 0x10000), (0x1D400, 0x1D500), (0x1F300, 0x1F650), (0x1F900, 0x1FA00), (0x20000, 0x20100)]
CODE = ["if (a[i] != b) {\n\treturn -1;\n}", "x += 0x1F; // why?", "def f(self, *args):\n    pass\n", "<p class=\"a\">&amp;</p>",
        "SELECT * FROM t WHERE a >= 3;", "don't can't we've it's I'm do not", "https://example.org/a_b?c=1&d=%20", "a.b.c() ?. ! , . '"]
ODD = ["\r\n", "\n\n", "  ", "    ", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufe0f", "\u0301", "e\u0301",
       "\u0000", "\u0001", "\u007f", "\u0085", "\u00ad", "\ufffd", "\ufeff", "▁", "##", "<unk>", "[UNK]", "<0x0A>", "</s>", "<s>",
       "👨‍👩‍👧", "🇩🇪", "☃️", "ﬁ", "①", "㍿", "ｶﾞ", "İ", "ſ", "ß", "\u0600a", "1234567890"]


def texts():
    draw = random.Random(47)
    words = TEXT.split()
    assigned = lambda c: unicodedata.category(chr(c)) not in ("Cn", "Cs")
    ranges = [[c for c in range(a, b) if assigned(c)] for a, b in SCRIPTS]
    every = [c for c in [*range(0xD800), *range(0xE000, 0x30000)] if assigned(c)]

    def part():
        kind = draw.randrange(10)
        if kind < 3:
            return " ".join(draw.choices(words, k=draw.randrange(1, 6)))
        if kind < 6:
            return "".join(chr(c) for c in draw.choices(draw.choice(ranges), k=draw.randrange(1, 8)))
        if kind == 6:
            return draw.choice(CODE)
        if kind == 7:
            return "".join(chr(c) for c in draw.choices(every, k=draw.randrange(1, 5)))
        return "".join(draw.choices(ODD, k=draw.randrange(1, 4)))

    out = ["", " ", "▁", "a"] + LINES
    while len(out) < 2000:
        out.append("".join(part() + draw.choice(["", "", " "]) for _ in range(draw.randrange(1, 6))))
    return out


TEXTS = texts()


def hashed(strings):
    out = []
    for s in strings:
        h = 0xCBF29CE484222325
        for byte in s.encode():
            h = (h ^ byte) * 0x100000001B3 % 2**64
        out.append(f"{h:016x}"[:8])
    return "".join(out)


def case(name, files, config, ids, decode=None):
    out = {"name": name, "files": files, "config": config, "ids": hashed(" ".join(map(str, i)) for i in ids)}
    if decode:
        out["text"] = hashed(decode(i) for i in ids)
    return out


def save(folder, name, content):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    with open(os.path.join(HERE, folder, name), "wb") as f:
        f.write(content)
    return f"tests:{folder}/{name}"


def of_tokenizers(name, folder, tokenizer):
    file = save(folder, "tokenizer.json", tokenizer.to_str().encode())
    ids = [tokenizer.encode(t).ids for t in TEXTS]
    return case(name, {"tokenizer.json": file}, {}, ids, lambda i: tokenizer.decode(i, skip_special_tokens=False))


def train_sentencepiece(work, **more):
    """A unigram model with a table of replaced characters, as T5's."""
    rules = os.path.join(work, "rules.tsv")
    if "--all-characters" in sys.argv:
        more["normalization_rule_name"] = "nmt_nfkc"
    else:
        some = [*range(0x80, 0x530), *range(0x2000, 0x2070), 0x3000, *range(0xFB00, 0xFB07), *range(0xFF01, 0xFFA0)]
        pairs = {chr(c): unicodedata.normalize("NFKC", chr(c)) for c in some}
        pairs.update({unicodedata.normalize("NFD", chr(c)): chr(c) for c in range(0xC0, 0x250)})
        pairs.update({c: " " for c in "\t\n\r\u2028\u200e"})
        pairs.update({c: "" for c in "\u0001\u007f\u00ad\u200b"})
        pairs.update({"ｶﾞ": "ガ", "ﾊﾟ": "パ", "\u0600": "#"})
        with open(rules, "w") as f:
            for source, target in sorted(pairs.items()):
                if source != target:
                    code = lambda s: " ".join(f"{ord(c):X}" for c in s)
                    f.write(f"{code(source)}\t{code(target)}\n")
        more["normalization_rule_tsv"] = rules
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=os.path.join(work, "m"), model_type="unigram", minloglevel=2,
        hard_vocab_limit=False, character_coverage=0.98, **more)
    with open(os.path.join(work, "m.model"), "rb") as f:
        return f.read()


def unigram(model, pre_tokenizer, normalizer, byte_fallback=False):
    """What transformers makes of a SentencePiece model, mostly."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    tokenizer = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=proto.trainer_spec.unk_id,
                                         byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizer(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def unigrams():
    with tempfile.TemporaryDirectory() as work:
        plain = train_sentencepiece(work, vocab_size=420)
        bytes_too = train_sentencepiece(work, vocab_size=700, byte_fallback=True, add_dummy_prefix=True, split_digits=True,
                                        remove_extra_whitespaces=False)
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    t5 = unigram(plain, pre_tokenizers.Metaspace(), lambda table: normalizers.Sequence([table, spaces]))
    yield of_tokenizers("Unigram, as T5", "tiny_unigram", t5)
    xlm = unigram(plain, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), lambda table: table)
    yield dict(of_tokenizers("Unigram, as XLM-R", "tiny_unigram_words", xlm))
    whole = unigram(bytes_too, None, lambda _: normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), True)
    whole.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield of_tokenizers("Unigram with bytes, texts whole", "tiny_unigram_bytes", whole)

    # sentencepiece takes no special tokens from a text: these stay its text.
    processor = sentencepiece.SentencePieceProcessor(model_proto=plain)
    file = save("tiny_spiece", "spiece.model", plain)
    yield dict(case("SentencePiece's unigram, as T5", {"spiece.model": file}, {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer"}},
                    [processor.encode(t) + [processor.eos_id()] for t in TEXTS]), plain=True)
    processor = sentencepiece.SentencePieceProcessor(model_proto=bytes_too)
    file = save("tiny_spiece_bytes", "tokenizer.model", bytes_too)
    config = {"tokenizer_class": "LlamaTokenizer", "legacy": True}
    yield dict(case("SentencePiece's unigram with bytes", {"tokenizer.model": file}, {"tokenizer_config.json": config},
                    [[processor.bos_id()] + processor.encode(t) for t in TEXTS]), plain=True)


def word_pieces():
    for name, lowercase, prefix in (("WordPiece, as BERT", True, "##"), ("WordPiece, cased, other marks", False, "@@")):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix,
                                               **({} if lowercase else {"max_input_chars_per_word": 12})))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=lowercase)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(
            vocab_size=600, special_tokens=special, continuing_subword_prefix=prefix, show_progress=False))
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        yield of_tokenizers(name, "tiny_word_piece" if lowercase else "tiny_word_piece_cased", tokenizer)


def ranks_of(text, size):
    """Merges of the most frequent neighbours, and some longer tokens that no merge makes."""
    words = {}
    for word in text.split(" "):
        key = tuple(bytes([b]) for b in (" " + word).encode())
        words[key] = words.get(key, 0) + 1
    ranks = [bytes([b]) for b in random.Random(1).sample(range(256), 256)]
    while len(ranks) < size:
        counts = {}
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + n
        best = max(counts, key=lambda p: (counts[p], p))
        ranks.append(best[0] + best[1])
        new = {}
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            new[tuple(out)] = new.get(tuple(out), 0) + n
        words = new
    return dict.fromkeys(ranks + [b"  ", b"    ", b"whole words", b"zzyzx", "猫在".encode(), b"\xe7\x8c"])


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
KIMI = "|".join([
    r"""[\p{Han}]+""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])


def of_tiktoken(name, files, config, ranks, pattern, bos=(), normalize=lambda t: t):
    encoding = tiktoken.Encoding("golden", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ids = [list(bos) + encoding.encode(normalize(t), disallowed_special=()) for t in TEXTS]
    return dict(case(name, files, config, ids, lambda i: encoding.decode(i[len(bos):], errors="replace")), plain=True, bos=len(bos))


def tiktokens():
    ranks = {token: rank for rank, token in enumerate(ranks_of(TEXT, 700))}
    file = save("tiny_tiktoken", "tiktoken.model", b"".join(
        base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    yield of_tiktoken("tiktoken, as Kimi K2", {"tiktoken.model": file}, {}, ranks, KIMI)
    yield of_tiktoken("tiktoken, as Llama 3", {"tokenizer.model": file}, {}, ranks, LLAMA3, [len(ranks)])
    yield of_tiktoken("tiktoken, as Qwen 1", {"qwen.tiktoken": file}, {}, ranks, QWEN, normalize=lambda t: unicodedata.normalize("NFC", t))
    if DATA:
        from tiktoken.load import load_tiktoken_bpe
        path = "tokenizers/llama3/tokenizer.model"
        ranks = load_tiktoken_bpe(os.path.join(DATA, path))
        yield of_tiktoken("Llama 3", {"tokenizer.model": "data:" + path}, {}, ranks, LLAMA3, [len(ranks)])


def spaced_merges():
    """Tokens of several spaces, as a list of two tokens: the older form, a text, tokenizers refuses."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(LINES + ["    x" * 20, "a    b  c " * 20], trainer)
    return of_tokenizers("BPE over spaces", "tiny_spaced_bpe", tokenizer)


def main():
    cases = [*unigrams(), *word_pieces(), *tiktokens(), spaced_merges()]
    with open(os.path.join(HERE, "model_goldens.json"), "w") as f:
        f.write("{\n")
        made = {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__, "tiktoken": tiktoken.__version__}
        f.write(f'"made_with": {json.dumps(made)},\n"texts": [\n')
        f.write(",\n".join(json.dumps(t) for t in TEXTS))
        f.write('\n],\n"cases": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n}\n")


if __name__ == "__main__":
    main()

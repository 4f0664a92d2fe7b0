"""Writes unicode_goldens.json: what tokenizers makes of every code point in each class of its regular expressions and in
each step that knows Unicode.

    pip install tokenizers==0.23.3
    python tests/tokenizer/make_unicode_goldens.py

Classes are runs over CODE_POINTS: of categories as "32Cc 1Zs ...", of the others the lengths of runs
outside and inside in turn. Of what changes texts there is a hash for each 256 code points of which it changes any.
"""
import json
import os

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
# Beyond these nothing has been assigned but for private use.
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000)]
TEXT = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Cyrillic Greek Arabic Hebrew Thai Devanagari Common Inherited".split()

POSIX = "alpha alnum digit upper lower punct space blank cntrl xdigit word".split()


def found(splitter):
    """Which a pre-tokenizer removes."""
    left = set()
    for piece, _ in splitter.pre_tokenize_str(TEXT):
        left.update(piece)
    return [chr(c) not in left for c in CODE_POINTS]


def matching(pattern):
    return found(pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed"))


def runs(values):
    """[(value, length), ...]"""
    out = []
    for v in values:
        if out and out[-1][0] == v:
            out[-1][1] += 1
        else:
            out.append([v, 1])
    return out


def lengths(inside):
    found_runs = runs(inside)
    return " ".join((["0"] if found_runs[0][0] else []) + [str(n) for _, n in found_runs])


def categories():
    of = ["Cs"] * len(CODE_POINTS)
    for name in CATEGORIES:
        for i, inside in enumerate(matching(r"\p{%s}" % name)):
            if inside:
                of[i] = name
    return " ".join(f"{n}{name}" for name, n in runs(of))


def digits():
    """Digits has no behaviour that removes; alone each digit is a piece."""
    alone = pre_tokenizers.Digits(individual_digits=True)
    return [len(alone.pre_tokenize_str("a" + chr(c) + "a")) > 1 for c in CODE_POINTS]


def words():
    """Whitespace drops white space, and cuts between a letter and what is neither that nor a word's."""
    split = pre_tokenizers.Whitespace()
    return [[p for p, _ in split.pre_tokenize_str("a" + chr(c))] == ["a" + chr(c)] for c in CODE_POINTS]


def hashes(change):
    """{block: FNV-1a of "code point text;" of those that it changes}"""
    out = {}
    for c in CODE_POINTS:
        changed = change(chr(c))
        if changed == chr(c):
            continue
        h = int(out.get(c >> 8, "cbf29ce484222325"), 16)
        for byte in f"{c:x} {changed};".encode():
            h = (h ^ byte) * 0x100000001B3 % 2**64
        out[c >> 8] = f"{h:016x}"
    return {f"{block:x}": h for block, h in out.items()}


# Of combining classes 240, 230, 220, 202, 9, 8, 7 and 1.
MARKS = "\u0345\u0301\u0323\u0327\u094d\u3099\u093c\u0334"


def order(c):
    """Where among these marks a mark comes; other characters as they are."""
    nfd = normalizers.NFD().normalize_str
    return c if nfd(MARKS + c) == nfd(MARKS) + nfd(c) else nfd(MARKS + c)


def main():
    patterns = [r"\s", r"\w", r"\d", ".", "[\u0800-\u4E00]"] + [r"\p{%s}" % s for s in SCRIPTS] + [f"[[:{p}:]]" for p in POSIX]
    classes = {p: matching(p) for p in patterns}
    steps = {"Digits": digits(), "Punctuation": found(pre_tokenizers.Punctuation("removed")),
             "WhitespaceSplit": found(pre_tokenizers.WhitespaceSplit()), "Whitespace": words()}
    steps_of = {"Lowercase": normalizers.Lowercase(), "NFC": normalizers.NFC(), "NFD": normalizers.NFD(),
                "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "StripAccents": normalizers.StripAccents()}
    changes = {name: step.normalize_str for name, step in steps_of.items()}
    changes["order"] = order
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    for part in ("clean_text", "handle_chinese_chars", "strip_accents"):
        changes["Bert " + part] = normalizers.BertNormalizer(**dict(off, **{part: True})).normalize_str
    goldens = {"tokenizers": tokenizers.__version__, "categories": categories(),
               "classes": {k: lengths(v) for k, v in classes.items()},
               "steps": {k: lengths(v) for k, v in steps.items()},
               "changes": {k: hashes(v) for k, v in changes.items()}}
    with open(os.path.join(HERE, "unicode_goldens.json"), "w") as f:
        json.dump(goldens, f, indent=0, ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints the tables of src/data/tokenizer/newer_characters.cc. Parts of the tokenizers library use different versions
of Unicode: each is tested with every code point, and compared with PCRE2 or the newest Unicode.

    pip install tokenizers==0.23.3 unicodedata2
    python3 tools/make_newer_characters.py        on the oldest supported system: Debian 12, PCRE2 10.42
"""
import bisect
import collections
import ctypes

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

FINER = [("[[:alpha:]]", r"\p{Alphabetic}"), ("[[:lower:]]", r"\p{Lowercase}"), ("[[:upper:]]", r"\p{Uppercase}")]
# Code points beyond these are unassigned or for private use.
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000)]
TEXT = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
# Each class is written in either engine's syntax (regex.cc). Scripts with new characters since Unicode 15.
CLASSES = [(r"\s", r"\p{White_Space}"), (r"\w", r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE]")]
# Ranges in published tokenizers (DeepSeek's) that contain newer characters.
RANGES = [("[\u0800-\u4E00]", "[\u0800-\u4E00]")]
SCRIPTS = ("Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Thai Lao Devanagari Kannada Telugu Tamil Malayalam Balinese Khojki "
           "Ethiopic Myanmar Egyptian_Hieroglyphs Common Inherited").split()


def of_tokenizers(pattern):
    left = set()
    for piece, _ in pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(TEXT):
        left.update(map(ord, piece))
    return [c for c in CODE_POINTS if c not in left]


class Pcre2:
    UTF_UCP, NO_UTF_CHECK = 0x00080000 | 0x00020000, 0x40000000

    def __init__(self):
        self.lib = ctypes.CDLL("libpcre2-8.so.0")
        self.lib.pcre2_compile_8.restype = self.lib.pcre2_match_data_create_8.restype = ctypes.c_void_p
        self.lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
        self.text = TEXT.encode()
        self.data = ctypes.c_void_p(self.lib.pcre2_match_data_create_8(1, None))

    def matching(self, pattern):
        runs = f"(?:{pattern}){{1,500}}".encode()  # it cannot compile more
        code = self.lib.pcre2_compile_8(runs, ctypes.c_size_t(len(runs)), self.UTF_UCP, ctypes.byref(ctypes.c_int()),
                                        ctypes.byref(ctypes.c_size_t()), None)
        assert code, pattern
        code, out, at = ctypes.c_void_p(code), [], 0
        none = -1
        while True:
            result = self.lib.pcre2_match_8(code, self.text, ctypes.c_size_t(len(self.text)), ctypes.c_size_t(at),
                                            self.NO_UTF_CHECK, self.data, None)
            assert result > 0 or result == none, (pattern, result)
            if result == none:
                return out
            begin, at = self.lib.pcre2_get_ovector_pointer_8(self.data)[0:2]
            out += map(ord, self.text[begin:at].decode())


def bytes_of(c):
    return len(chr(c).encode())


def stand_ins():
    """Runs [first, last, stand-in] of characters that tokenizers' regular expressions classify differently than PCRE2,
    each with the nearest character that PCRE2 classifies so and that has as many bytes: of the same RANGES, script and
    FINER classes, or with as many of the last two in common as possible."""
    pcre2 = Pcre2()
    theirs, ours = collections.defaultdict(set), collections.defaultdict(set)
    of_scripts = [(r"\p{%s}" % name, r"\p{sc:%s}" % name) for name in SCRIPTS]
    for onig, pcre in [(r"\p{%s}" % name, r"\p{%s}" % name) for name in CATEGORIES] + CLASSES + RANGES + of_scripts + FINER:
        for c in of_tokenizers(onig):
            theirs[c].add(onig)
        for c in pcre2.matching(pcre):
            ours[c].add(onig)
    finer, scripts = {onig for onig, _ in FINER}, {onig for onig, _ in of_scripts}
    alike, roughly = collections.defaultdict(list), collections.defaultdict(list)  # without FINER
    for c in CODE_POINTS:
        if theirs[c] - finer == ours[c] - finer:
            alike[bytes_of(c), frozenset(theirs[c])].append(c)
            roughly[bytes_of(c), frozenset(theirs[c] - finer)].append(c)
            roughly[bytes_of(c), frozenset(theirs[c] - finer - scripts), "any script"].append(c)
    runs = []
    for c in CODE_POINTS:
        if theirs[c] - finer == ours[c] - finer:
            continue
        n, all_of_it, plain = bytes_of(c), frozenset(theirs[c]), frozenset(theirs[c] - finer - scripts)
        known = (alike[n, all_of_it] or alike[n, all_of_it - scripts] or roughly[n, all_of_it - finer] or
                 roughly[n, plain] or roughly[n, plain, "any script"])
        at = bisect.bisect(known, c)
        near = min(known[max(at - 1, 0):at + 1], key=lambda k: abs(k - c))
        if runs and runs[-1][1] == c - 1 and runs[-1][3] == theirs[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, near, theirs[c]])
    return [run[:3] for run in runs]


def ranges(code_points):
    runs = []
    for c in code_points:
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


def unknown_to_normalizers():
    strip, nfkd = normalizers.StripAccents().normalize_str, normalizers.NFKD().normalize_str
    return [c for c in CODE_POINTS if nfkd(chr(c)) == chr(c) and
            ((unicodedata2.category(chr(c)).startswith("M") and strip(chr(c)) == chr(c)) or
             unicodedata2.normalize("NFKD", chr(c)) != chr(c))]


def unknown_punctuation():
    left = set()
    for piece, _ in pre_tokenizers.Punctuation("removed").pre_tokenize_str(TEXT):
        left.update(map(ord, piece))
    return [c for c in CODE_POINTS if unicodedata2.category(chr(c)).startswith("P") and c in left]


def show(name, runs):
    print(name)
    line = "   "
    for run in runs:
        entry = " {" + ", ".join(f"0x{c:X}" for c in run) + "},"
        if len(line + entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line)


def main():
    show("kNewer", stand_ins())
    show("kUnknownToNormalizers", ranges(unknown_to_normalizers()))
    show("kUnknownPunctuation", ranges(unknown_punctuation()))


if __name__ == "__main__":
    main()

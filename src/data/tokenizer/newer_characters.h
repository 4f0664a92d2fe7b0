// Characters that Unicode got, or classed otherwise, between the versions that the libraries here know and those that
// the parts of tokenizers know: its regular expressions 16 (PCRE2 of Debian 12: 14), its normalizers 9, its
// punctuation 8.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// For one that PCRE2 would take for unassigned, an older one near it, of the same category, of as many bytes, and of
// the same script where there is one; else c.
char32_t StandInOf(char32_t c);
// `text`, or `storage` filled with it where it holds such characters: each its stand-in. A search through either finds
// the same places, unless the expression names one of the two, a range that ends between them, or a script of one. No
// character is so far from its own that the one range that published tokenizers name there (U+0800 to U+4E00) ends
// between. REQUIRES: valid UTF-8.
std::string_view WithStandIns(std::string_view text, std::string& storage);

// Marks and characters with decompositions that tokenizers' normalizers take for neither.
bool IsUnknownToNormalizers(char32_t c);
bool IsUnknownPunctuation(char32_t c);

}  // namespace temper

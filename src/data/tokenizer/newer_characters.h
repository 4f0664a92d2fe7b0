// Characters that Unicode added or reclassified between the versions of the libraries here and those of the tokenizers
// library: its regular expressions use 16 (PCRE2 of Debian 12: 14), its normalizers 9, its punctuation 8.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// For a character that PCRE2 takes for unassigned: an older one near it of the same category and byte count, and of the
// same script if there is one; else c.
char32_t StandInOf(char32_t c);
// `text`, or, if it holds such characters, `storage` with their stand-ins. A search finds
// the same places in both, unless the expression names one of the two, a range that ends
// between them, or the script of one. The only such range in published tokenizers (U+0800
// to U+4E00) does not end between any character and its stand-in. REQUIRES: valid UTF-8.
std::string_view WithStandIns(std::string_view text, std::string& storage);

// Marks and characters with decompositions that tokenizers' normalizers do not recognise as such.
bool IsUnknownToNormalizers(char32_t c);
bool IsUnknownPunctuation(char32_t c);
// Further ones that BERT's normalizer, whose version is 8, does not know as nonspacing marks.
bool IsUnknownNonspacing(char32_t c);

}  // namespace temper

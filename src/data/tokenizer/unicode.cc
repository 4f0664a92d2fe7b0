#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "data/tokenizer/newer_characters.h"

namespace temper::unicode {
namespace {

const utf8proc_property_t& Property(char32_t c) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}
utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

using CodePoints = std::vector<utf8proc_int32_t>;

// Sorts each run of combining marks by class. utf8proc swaps neighbours, which is quadratic for a text of a million
// marks; hence this stable sort.
void OrderMarks(CodePoints& code_points) {
  const auto combining = [](utf8proc_int32_t c) { return Property(c).combining_class; };
  for (size_t i = 0; i < code_points.size();) {
    if (combining(code_points[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < code_points.size() && combining(code_points[end]) != 0) ++end;
    std::stable_sort(code_points.begin() + i, code_points.begin() + end,
                     [&](auto a, auto b) { return combining(a) < combining(b); });
    i = end;
  }
}

void Decompose(char32_t c, bool compatible, CodePoints& out) {
  std::array<utf8proc_int32_t, 32> expansion;  // the longest (U+FDFA, compatible) has 18
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  int boundary = 0;
  const auto n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), expansion.data(), expansion.size(), options, &boundary);
  TEMPER_CHECK(n >= 0 && n <= static_cast<ptrdiff_t>(expansion.size()))
      << "decomposing U+" << std::hex << static_cast<uint32_t>(c);
  out.insert(out.end(), expansion.begin(), expansion.begin() + n);
}

// Appends the decomposed characters in order, composed if wanted; then clears them.
void Finish(CodePoints& decomposed, bool compose, std::string& out) {
  OrderMarks(decomposed);
  if (compose && !decomposed.empty()) {
    const auto n = utf8proc_normalize_utf32(decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()),
                                            static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TEMPER_CHECK(n >= 0) << utf8proc_errmsg(n);
    decomposed.resize(static_cast<size_t>(n));
  }
  CodePoints parts;
  for (const utf8proc_int32_t c : decomposed) {
    if (!IsUnknownToNormalizers(static_cast<char32_t>(c))) {
      utf8::Append(out, static_cast<char32_t>(c));
      continue;
    }
    parts.clear();  // composed of parts that the normalizers do not compose
    Decompose(static_cast<char32_t>(c), /*compatible=*/false, parts);
    for (const utf8proc_int32_t part : parts) utf8::Append(out, static_cast<char32_t>(part));
  }
  decomposed.clear();
}

// Characters with a lower case since Unicode 15 to 17, and the distance to it.
struct Lower {
  char32_t first, last;
  int32_t distance;
};
constexpr Lower kNewerLower[] = {{0x1C89, 0x1C89, 1},    {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                 {0xA7CC, 0xA7CC, 1},    {0xA7CE, 0xA7CE, 1},
                                 {0xA7D2, 0xA7D2, 1},    {0xA7D4, 0xA7D4, 1},
                                 {0xA7DA, 0xA7DA, 1},    {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                 {0x10D50, 0x10D65, 32}, {0x16EA0, 0x16EB8, 27}};

char32_t LowerOf(char32_t c) {
  const auto* const newer = std::find_if(std::begin(kNewerLower), std::end(kNewerLower),
                                         [c](const Lower& l) { return c >= l.first && c <= l.last; });
  if (newer != std::end(kNewerLower)) return c + static_cast<char32_t>(newer->distance);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  const auto category = Category(StandInOf(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO ||
         (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);  // Unicode 17
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto category = Category(c);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !IsUnknownPunctuation(c)) ||
         c == 0x166D || c == 0x111C9;  // punctuation in that version
}

bool IsWord(char32_t c) {
  const auto category = Category(StandInOf(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Other_Alphabetic among the symbols: circled, squared and negative letters.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool IsMark(char32_t c) {
  const auto category = Category(c);
  return (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && !IsUnknownToNormalizers(c)) ||
         c == 0x1CF2 || c == 0x1CF3;  // marks in that version
}

bool IsNonspacingMark(char32_t c) {
  return (Category(c) == UTF8PROC_CATEGORY_MN && !IsUnknownToNormalizers(c) && !IsUnknownNonspacing(c)) || c == 0x1734;
}

bool IsOther(char32_t c) {
  const auto category = Category(c);
  // Format characters since Unicode 9.
  const bool newer = c == 0x890 || c == 0x891 || c == 0x8E2 || c == 0x110CD || (c >= 0x13430 && c <= 0x1343F);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO ||
         (category == UTF8PROC_CATEGORY_CF && !newer);
}

size_t GraphemeEnd(std::string_view text, size_t begin) {
  utf8proc_int32_t state = 0;
  auto left = static_cast<utf8proc_int32_t>(utf8::At(text, begin));
  for (size_t end = begin + utf8::Length(text[begin]); end < text.size(); end += utf8::Length(text[end])) {
    const auto right = static_cast<utf8proc_int32_t>(utf8::At(text, end));
    if (utf8proc_grapheme_break_stateful(left, right, &state)) return end;
    left = right;
  }
  return text.size();
}

std::string Normalize(std::string_view text, Form form) {
  if (utf8::IsAscii(text)) return std::string(text);
  const bool compose = form == Form::kNfc || form == Form::kNfkc;
  const bool compatible = form == Form::kNfkc || form == Form::kNfkd;
  std::string out;
  out.reserve(text.size());
  CodePoints decomposed;
  for (size_t i = 0; i < text.size(); i += utf8::Length(text[i])) {
    const char32_t c = utf8::At(text, i);
    if (IsUnknownToNormalizers(c)) {  // no mark, and composed with nothing
      Finish(decomposed, compose, out);
      utf8::Append(out, c);
    } else {
      Decompose(c, compatible, decomposed);
    }
  }
  Finish(decomposed, compose, out);
  return out;
}

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += utf8::Length(text[i])) {
    const char32_t c = utf8::At(text, i);
    if (c == 0x130) {  // İ: the one character whose lower case is two (i and a dot above)
      out += "i\xCC\x87";
    } else {
      utf8::Append(out, LowerOf(c));
    }
  }
  return out;
}

}  // namespace temper::unicode

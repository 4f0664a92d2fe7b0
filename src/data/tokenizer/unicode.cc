#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace temper::unicode {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const utf8proc_property_t& Property(char32_t c) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}
utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Sorts each run of combining marks by class. utf8proc does so by exchanging neighbours, which a text of a million
// marks makes quadratic; hence a stable sort.
void OrderMarks(std::vector<utf8proc_int32_t>& code_points) {
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

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsWord(char32_t c) {
  const auto category = Category(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Other_Alphabetic among the symbols: circled, squared and negative letters.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool IsMark(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_MN;
}

std::string Normalize(std::string_view text, Form form) {
  if (IsAscii(text)) return std::string(text);
  const bool compose = form == Form::kNfc || form == Form::kNfkc;
  const bool compatible = form == Form::kNfkc || form == Form::kNfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  std::array<utf8proc_int32_t, 32> expansion;  // the longest (U+FDFA, compatible) has 18
  for (size_t i = 0; i < text.size(); i += utf8::Length(text[i])) {
    const auto c = static_cast<utf8proc_int32_t>(utf8::At(text, i));
    int boundary = 0;
    const auto n = utf8proc_decompose_char(c, expansion.data(), expansion.size(), options, &boundary);
    TEMPER_CHECK(n >= 0 && n <= static_cast<ptrdiff_t>(expansion.size())) << "decomposing U+" << std::hex << c;
    code_points.insert(code_points.end(), expansion.begin(), expansion.begin() + n);
  }
  OrderMarks(code_points);
  size_t count = code_points.size();
  if (compose) {
    const auto n = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(count),
                                            static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TEMPER_CHECK(n >= 0) << utf8proc_errmsg(n);
    count = static_cast<size_t>(n);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < count; ++i) utf8::Append(out, static_cast<char32_t>(code_points[i]));
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
      utf8::Append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

}  // namespace temper::unicode

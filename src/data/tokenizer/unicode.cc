#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace temper::unicode {
namespace {

// Bytes of the character at text[i], 0 if it is ill-formed; then *bad is the length of the maximal ill-formed part:
// the longest prefix of a well-formed character, or one byte (Unicode 15, section 3.9, "U+FFFD substitution").
size_t ScanOne(std::string_view text, size_t i, size_t* bad) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  *bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t k = 1; k < n; ++k) {
    if (i + k >= text.size()) return 0;
    const unsigned char b = byte(i + k);
    if (k == 1 ? (b < low || b > high) : (b & 0xC0) != 0x80) return 0;
    *bad = k + 1;
  }
  return n;
}

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

size_t ValidPrefix(std::string_view text) {
  size_t i = 0, bad = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      uint64_t eight;
      std::copy_n(text.data() + i, 8, reinterpret_cast<char*>(&eight));
      if ((eight & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const size_t n = ScanOne(text, i, &bad);
    if (n == 0) break;
    i += n;
  }
  return i;
}

std::string_view MakeValid(std::string_view text, std::string& storage) {
  size_t i = ValidPrefix(text);
  if (i == text.size()) return text;
  storage.assign(text.substr(0, i));
  while (i < text.size()) {
    size_t bad = 0;
    const size_t n = ScanOne(text, i, &bad);
    storage += n ? text.substr(i, n) : kReplacement;
    i += n ? n : bad;
  }
  return storage;
}

char32_t At(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[i + k])); };
  switch (Length(text[i])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

size_t LastStart(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

void Append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

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
  for (size_t i = 0; i < text.size(); i += Length(text[i])) {
    const auto c = static_cast<utf8proc_int32_t>(At(text, i));
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
  for (size_t i = 0; i < count; ++i) Append(out, static_cast<char32_t>(code_points[i]));
  return out;
}

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += Length(text[i])) {
    const char32_t c = At(text, i);
    if (c == 0x130) {  // İ: the one character whose lower case is two (i and a dot above)
      out += "i\xCC\x87";
    } else {
      Append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

}  // namespace temper::unicode

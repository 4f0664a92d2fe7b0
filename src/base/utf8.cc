#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace temper::utf8 {
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

}  // namespace

size_t LengthAt(std::string_view text, size_t i) {
  size_t bad = 0;
  return ScanOne(text, i, &bad);
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

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

std::string Harmless(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t bad = 0;
    const size_t n = ScanOne(text, i, &bad);
    const char32_t c = n > 0 ? At(text, i) : 0;
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);  // with those of C1
    if (!control) {
      out += text.substr(i, n);
    } else {
      constexpr char kDigits[] = "0123456789abcdef";
      const unsigned code = n > 0 ? c : static_cast<unsigned char>(text[i]);
      out += {'\\', 'x', kDigits[code >> 4], kDigits[code & 15]};
    }
    i += std::max<size_t>(n, 1);
  }
  return out;
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

}  // namespace temper::utf8

#include "data/tokenizer/charsmap.h"

#include <cstring>

#include "base/utf8.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/unicode.h"
#include "format/base64.h"

namespace temper {
namespace {

size_t OffsetOf(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & 1u << 9) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::Create(std::string_view text, const std::string& where) {
  const auto map = DecodeBase64(text);
  if (!map || !CharsmapIsSafe(*map)) return Corrupt(where + ": the precompiled_charsmap of its normalizer is broken");
  Charsmap made;
  if (map->empty()) return made;
  uint32_t bytes = 0;
  std::memcpy(&bytes, map->data(), sizeof(bytes));
  made.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(made.units_.data(), map->data() + sizeof(bytes), bytes);
  made.replacements_ = map->substr(sizeof(bytes) + bytes);
  if (!utf8::IsValid(made.replacements_)) {
    return Corrupt(where + ": the precompiled_charsmap of its normalizer is not UTF-8");
  }
  return made;
}

std::optional<std::string> Charsmap::Apply(std::string_view text, size_t limit) const {
  constexpr size_t kShort = 6;
  if (units_.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = unicode::GraphemeEnd(text, begin);
    const auto whole = end - begin < kShort ? Find(text.substr(begin, end - begin)) : std::nullopt;
    if (whole) {
      out += *whole;
    } else {
      for (size_t i = begin; i < end && out.size() <= limit; i += utf8::Length(text[i])) {
        const std::string_view character = text.substr(i, utf8::Length(text[i]));
        out += Find(character).value_or(character);
      }
    }
    begin = end;
    if (out.size() > limit) return std::nullopt;
  }
  return out;
}

std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  size_t node = OffsetOf(units_[0]);
  for (const char c : text) {
    if (c == '\0') break;
    node ^= static_cast<unsigned char>(c);
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFFu)) != static_cast<unsigned char>(c)) break;
    node ^= OffsetOf(unit);
    if ((unit >> 8 & 1) == 0) continue;
    const char* const begin = replacements_.data() + (units_[node] & ~(1u << 31));
    if ((*begin & 0xC0) == 0x80) return std::nullopt;  // within a character
    return std::string_view(begin);
  }
  return std::nullopt;
}

}  // namespace temper

#include "data/unknown_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

constexpr size_t kShownTexts = 8;

std::string Shown(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  const bool whole = utf8::LengthAt(character, 0) > 0;
  const char32_t c = whole ? utf8::At(character, 0) : 0;
  return unicode::IsSpace(c) ? fmt::format("U+{:04X}", static_cast<uint32_t>(c)) : utf8::Harmless(character);
}

}  // namespace

void UnknownTokens::AddTexts(std::span<const std::string> unknown) {
  for (const std::string& text : unknown) {
    for (size_t i = 0; i < text.size();) {
      const size_t n = std::max<size_t>(utf8::LengthAt(text, i), 1);
      ++characters[Shown(std::string_view(text).substr(i, n))];
      i += n;
    }
  }
}

void UnknownTokens::Add(const UnknownTokens& other) {
  if (token.empty()) token = other.token;
  count += other.count;
  for (const auto& [character, n] : other.characters) characters[character] += n;
}

std::vector<std::pair<std::string, int64_t>> UnknownTokens::MostFrequent() const {
  std::vector<std::pair<std::string, int64_t>> sorted(characters.begin(), characters.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  sorted.resize(std::min(sorted.size(), kShownTexts));
  return sorted;
}

}  // namespace temper

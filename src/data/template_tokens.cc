#include "data/template_tokens.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

namespace temper {
namespace {

constexpr EncodeOptions kPlainText = {.add_special = false};

// The length of the marker at the start of `text`: <|name|> or <name>; 0 if there is none.
size_t MarkerAt(std::string_view text) {
  constexpr size_t kLongest = 64;
  const size_t end = text.substr(0, kLongest).find('>');
  if (!text.starts_with('<') || end == text.npos || end < 2) return 0;
  const std::string_view name = text.substr(1, end - 1);
  const bool plain = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '|' || c == '-'; });
  return plain ? end + 1 : 0;
}

}  // namespace

std::optional<int32_t> TurnEndToken(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::string end = chat_template.TurnEnd();
  end.erase(0, end.find_first_not_of(" \t\r\n"));
  const auto ids = tokenizer.Encode(end, kPlainText);
  if (!ids.ok() || ids->empty() || !tokenizer.IsSpecial(ids->front())) return std::nullopt;
  return ids->front();
}

std::vector<std::string> MarkersWithoutToken(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const OrderedJson turns = {{{"role", "user"}, {"content", "Hi"}},
                             {{"role", "assistant"}, {"content", "Hi"}},
                             {{"role", "user"}, {"content", "Hi"}}};
  std::vector<std::string> missing;
  const auto text = chat_template.Render(turns, nullptr, /*add_generation_prompt=*/true);
  if (!text.ok()) return missing;
  for (size_t at = 0; at < text->size(); ++at) {
    const size_t size = MarkerAt(std::string_view(*text).substr(at));
    if (size == 0) continue;
    const std::string marker = text->substr(at, size);
    const auto ids = tokenizer.Encode(marker, kPlainText);
    if (!ids.ok() || ids->size() == 1 || std::count(missing.begin(), missing.end(), marker) > 0) continue;
    missing.push_back(marker);
  }
  return missing;
}

}  // namespace temper

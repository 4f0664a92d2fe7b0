#include "data/tokenizer/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

// A search may read this many bytes at every place of a text, so this limits the time that a hostile file can cost.
constexpr size_t kMaxContent = 1024;

bool EndsInWord(std::string_view text) {
  return !text.empty() && unicode::IsWord(utf8::At(text, utf8::LastStart(text)));
}
bool StartsWithWord(std::string_view text) {
  return !text.empty() && unicode::IsWord(utf8::At(text, 0));
}

}  // namespace

Status AddedTokenIds::Add(AddedToken token, const std::string& where) {
  if (token.content.empty()) return OkStatus();
  int64_t id = 0;
  if (const auto it = ids_.find(token.content); it != ids_.end()) {
    id = it->second;
  } else if (const auto known = vocabulary_.Find(token.content)) {
    id = *known;
  } else {
    id = std::max(largest_ + 1, vocabulary_.size());
    if (id > kMaxTokenId) return Corrupt(fmt::format("{}: more than {} tokens", where, kMaxTokenId));
  }
  if (token.id >= 0 && token.id != id) {
    return Corrupt(
        fmt::format("{}: the added token '{}' has the id {}, but the vocabulary of {} tokens gives it {}; the ids "
                    "of added tokens must follow the vocabulary's without a gap",
                    where, token.content, token.id, vocabulary_.size(), id));
  }
  token.id = static_cast<int32_t>(id);
  ids_[token.content] = token.id;
  largest_ = std::max(largest_, id);
  tokens_.push_back(std::move(token));
  return OkStatus();
}

Result<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens, const Normalizer* normalizer,
                                        const std::string& where) {
  AddedTokens made;
  RegexScratch scratch;
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxContent) {
      return Corrupt(
          fmt::format("{}: an added token of {} bytes (at most {})", where, token.content.size(), kMaxContent));
    }
    const auto [it, is_new] = made.by_content_.emplace(token.content, made.tokens_.size());
    if (is_new) {
      made.tokens_.push_back(std::move(token));
    } else {
      made.tokens_[it->second] = std::move(token);
    }
  }
  for (size_t i = 0; i < made.tokens_.size(); ++i) {
    const AddedToken& token = made.tokens_[i];
    made.by_id_[token.id] = i;
    Stretch stretch{token.content, /*at_start=*/true, GrowthLimit(token.content.size())};
    if (token.normalized && normalizer) TEMPER_RETURN_IF_ERROR(normalizer->Apply(stretch, scratch));
    if (stretch.text.empty() || stretch.text.size() > 8 * kMaxContent) continue;  // cannot occur
    (token.normalized ? made.normalized_ : made.raw_).patterns.emplace_back(std::move(stretch.text), i);
  }
  // If tokens normalize to the same spelling, the first special one is found, as in the tokenizers library.
  for (Matcher* matcher : {&made.raw_, &made.normalized_}) {
    std::stable_sort(matcher->patterns.begin(), matcher->patterns.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return made.tokens_[a.second].special > made.tokens_[b.second].special;
    });
    matcher->Build();
  }
  return made;
}

void AddedTokens::Matcher::Build() {
  patterns.erase(
      std::unique(patterns.begin(), patterns.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      patterns.end());
  for (size_t i = 0; i < patterns.size(); ++i) {
    auto& [low, high] = by_first[static_cast<unsigned char>(patterns[i].first[0])];
    if (high == 0) low = static_cast<uint32_t>(i);
    high = static_cast<uint32_t>(i + 1);
  }
}

const std::pair<std::string, size_t>* AddedTokens::Matcher::LongestAt(std::string_view text) const {
  auto [low, high] = by_first[static_cast<unsigned char>(text[0])];
  const std::pair<std::string, size_t>* longest = nullptr;
  for (size_t depth = 1; low < high; ++depth) {
    // patterns[low..high) agree with text[0..depth); the one that ends here comes first.
    if (patterns[low].first.size() == depth) longest = &patterns[low++];
    if (depth >= text.size() || low >= high) break;
    const auto first = patterns.begin() + low, last = patterns.begin() + high;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto at = [depth](const auto& p) { return static_cast<unsigned char>(p.first[depth]); };
    const auto from = std::partition_point(first, last, [&](const auto& p) { return at(p) < byte; });
    const auto to = std::partition_point(from, last, [&](const auto& p) { return at(p) == byte; });
    low = static_cast<uint32_t>(from - patterns.begin());
    high = static_cast<uint32_t>(to - patterns.begin());
  }
  return longest;
}

void AddedTokens::Split(std::string_view text, bool normalized, bool parse_special, std::vector<TextPart>& out) const {
  out.clear();
  if (text.empty()) return;
  const Matcher& matcher = normalized ? normalized_ : raw_;
  size_t covered = 0;
  for (size_t i = 0; i < text.size() && !matcher.patterns.empty();) {
    const auto& range = matcher.by_first[static_cast<unsigned char>(text[i])];
    const auto* match = range.second > 0 ? matcher.LongestAt(text.substr(i)) : nullptr;
    if (!match) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[match->second];
    size_t begin = i, end = i + match->first.size();
    i = end;  // even a match that is rejected below consumes its text
    if (token.special && !parse_special) continue;
    if (token.single_word && (EndsInWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token.lstrip) {
      while (begin > covered) {
        const size_t last = utf8::LastStart(text.substr(0, begin));
        if (!unicode::IsSpace(utf8::At(text, last))) break;
        begin = last;
      }
      begin = std::max(begin, covered);
    }
    if (token.rstrip) {
      while (end < text.size() && unicode::IsSpace(utf8::At(text, end))) end += utf8::Length(text[end]);
    }
    if (begin > covered) out.push_back({text.substr(covered, begin - covered), std::nullopt});
    out.push_back({text.substr(begin, end - begin), token.id});
    covered = end;
  }
  if (covered < text.size()) out.push_back({text.substr(covered), std::nullopt});
}

bool AddedTokens::Follow(const TextBorder& border, bool normalized) const {
  const auto& patterns = (normalized ? normalized_ : raw_).patterns;
  return std::none_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
    const auto& [text, token] = pattern;
    return border.MayEndOrCross(text) || (tokens_[token].single_word && text.starts_with(border.right));
  });
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}
const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

}  // namespace temper

// FakeTokenizer: a tokenizer small enough to compute by hand, for tests. Every byte is a token; so is each word of a
// given list, taken longest first from left to right; special tokens are <s>, </s> and two of ChatML.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

class FakeTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kImStart = 258, kImEnd = 259, kFirstWord = 260;

  // `dummy_prefix`: a '_' in front of a text and after no special token, as SentencePiece puts a space there.
  explicit FakeTokenizer(std::vector<std::string> words = {}, bool dummy_prefix = false)
      : words_(std::move(words)), dummy_prefix_(dummy_prefix) {
    bos_ = kBos;
    eos_ = kEos;
    stop_ids_ = {kEos, kImEnd};
    for (const std::string& word : words_) begins_ += word.substr(0, 1);
  }
  void RemoveEos() { eos_.reset(); }
  // From now on these bytes are the unknown token, '?'.
  void Forget(std::string bytes) {
    forgotten_ = std::move(bytes);
    unknown_ = '?';
  }

  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const override {
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(kBos);
    const std::string prefixed = dummy_prefix_ && !options.continues && !text.empty() && SpecialAt(text, 0) < 0
                                     ? "_" + std::string(text)
                                     : std::string(text);
    for (size_t i = 0; i < prefixed.size();) {
      const std::string_view rest = std::string_view(prefixed).substr(i);
      if (options.parse_special) {
        if (const int32_t special = SpecialAt(rest, 0); special >= 0) {
          ids.push_back(special);
          i += Spelling(special).size();
          continue;
        }
      }
      const bool known = forgotten_.find(rest[0]) == std::string::npos;
      if (options.unknown && !known) options.unknown->emplace_back(1, rest[0]);
      if (options.unknown && known && unknown_ && rest[0] == *unknown_) options.unknown->emplace_back();
      int32_t best = known ? static_cast<unsigned char>(rest[0]) : *unknown_;
      size_t length = 1;
      const bool begins_word = begins_.find(rest[0]) != std::string::npos;  // most bytes begin none
      for (size_t w = 0; begins_word && w < words_.size(); ++w) {
        if (words_[w].size() > length && rest.starts_with(words_[w])) {
          best = kFirstWord + static_cast<int32_t>(w);
          length = words_[w].size();
        }
      }
      ids.push_back(best);
      i += length;
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (!IsSpecial(id) || !skip_special) text += Spelling(id);
    }
    std::string storage;
    return std::string(utf8::MakeValid(text, storage));
  }
  int64_t vocab_size() const override { return kFirstWord + static_cast<int64_t>(words_.size()); }
  std::optional<int32_t> TokenToId(std::string_view token) const override {
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (Spelling(id) == token) return id;
    }
    return std::nullopt;
  }
  std::string IdToToken(int32_t id) const override { return Spelling(id); }
  bool IsSpecial(int32_t id) const override { return id >= kBos && id < kFirstWord; }

 private:
  static int32_t SpecialAt(std::string_view text, size_t i) {
    if (text[i] != '<') return -1;  // as all of them begin
    for (int32_t id = kBos; id < kFirstWord; ++id) {
      if (text.substr(i).starts_with(kSpecials[id - kBos])) return id;
    }
    return -1;
  }
  std::string Spelling(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return "";
    if (id < kBos) return std::string(1, static_cast<char>(id));
    if (id < kFirstWord) return kSpecials[id - kBos];
    return words_[static_cast<size_t>(id - kFirstWord)];
  }

  static constexpr const char* kSpecials[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  const std::vector<std::string> words_;
  const bool dummy_prefix_;
  std::string begins_;  // the first byte of each word
  std::string forgotten_;
};

}  // namespace temper

// AddedTokens: tokens that are searched in the text itself, before it is cut into words: "<|im_start|>", "</s>".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/text_border.h"
#include "data/tokenizer/vocabulary.h"

namespace temper {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // includes the white space to its left
  bool rstrip = false;       // and to its right
  bool normalized = true;    // searched in the normalized text, by its normalized spelling
  bool special = false;      // omitted by Decode(skip_special)
};

// Gives added tokens their ids as the tokenizers library does: the vocabulary's id if it has the spelling, else the
// next free one from the vocabulary's size on.
class AddedTokenIds {
 public:
  explicit AddedTokenIds(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  // Appends `token`. If it has an id, that must be the one it gets; `where` names its file for the error.
  Status Add(AddedToken token, const std::string& where);
  bool Has(const std::string& content) const { return ids_.contains(content); }
  std::vector<AddedToken> Take() { return std::move(tokens_); }

 private:
  const Vocabulary& vocabulary_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  int64_t largest_ = -1;  // of ids_
};

// Part of a text: an added token (id) or text between two (no id). No other part is empty.
struct TextPart {
  std::string_view text;
  std::optional<int32_t> id;
};

// Immutable after Create; any thread.
class AddedTokens {
 public:
  // `tokens` have ids. Of duplicates the last one's flags count. `normalizer` may be null.
  static Result<AddedTokens> Create(std::vector<AddedToken> tokens, const Normalizer* normalizer,
                                    const std::string& where);

  // Cuts `text` (valid UTF-8) at the tokens that are not normalized (before the normalizer) or are (after it).
  // parse_special = false: searches only those that are not special.
  void Split(std::string_view text, bool normalized, bool parse_special, std::vector<TextPart>& out) const;

  // As TextBorder says, for a search with parse_special. No token ends or lies across, and none asks what is before it.
  bool Follow(const TextBorder& border, bool normalized) const;

  const AddedToken* Find(int32_t id) const;
  const AddedToken* Find(std::string_view content) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // Finds the leftmost longest of a set of strings: sorted, narrowed byte by byte.
  struct Matcher {
    std::vector<std::pair<std::string, size_t>> patterns;       // sorted; with the index of the token
    std::array<std::pair<uint32_t, uint32_t>, 256> by_first{};  // range of patterns that begin with a byte

    void Build();
    // The longest pattern at the start of `text`; nullptr if none.
    const std::pair<std::string, size_t>* LongestAt(std::string_view text) const;
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  Matcher raw_, normalized_;
};

}  // namespace temper

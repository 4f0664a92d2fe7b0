// AddedTokens: tokens that are looked for in the text itself, before it is cut into words: "<|im_start|>", "</s>".
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
#include "data/tokenizer/vocabulary.h"

namespace temper {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // and on its right
  bool normalized = true;    // looked for in the normalized text, in its normalized spelling
  bool special = false;      // left out by Decode(skip_special)
};

// Gives added tokens their ids as the tokenizers library does: the vocabulary's where it has the spelling, else the
// next free one from the vocabulary's size on.
class AddedTokenIds {
 public:
  explicit AddedTokenIds(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  // Appends `token`. An id it came with must be the one it gets; `where` names the file that says otherwise.
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
  // `tokens` have ids. A content that is there twice has its last flags. `normalizer` may be null.
  static Result<AddedTokens> Create(std::vector<AddedToken> tokens, const Normalizer* normalizer,
                                    const std::string& where);

  // Cuts `text` (valid UTF-8) at the tokens that are not normalized (before the normalizer) or are (after it).
  // parse_special = false looks for those only that are not special.
  void Split(std::string_view text, bool normalized, bool parse_special, std::vector<TextPart>& out) const;

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

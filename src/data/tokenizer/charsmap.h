// Charsmap: a table of characters and what replaces them, as SentencePiece makes it: the normalizer "Precompiled" of
// tokenizer.json (T5, XLM-R, most Unigram models).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// Immutable; any thread.
class Charsmap {
 public:
  // `text`: the table in base64. `where` names the file in errors.
  static Result<Charsmap> Create(std::string_view text, const std::string& where);

  // As the tokenizers library does, which replaces more than SentencePiece: a short cluster of characters whose begin
  // is in the table is replaced whole. nullopt: the result would be longer than `limit` bytes.
  std::optional<std::string> Apply(std::string_view text, size_t limit) const;

 private:
  Charsmap() = default;
  // What replaces the shortest entry that begins `text`.
  std::optional<std::string_view> Find(std::string_view text) const;

  std::vector<uint32_t> units_;  // a double array of Darts-clone; empty: nothing is replaced
  std::string replacements_;     // each ends in NUL
};

}  // namespace temper

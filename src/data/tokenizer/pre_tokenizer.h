// Pre-tokenizers of tokenizer.json: how a text is cut into the words that the model encodes one by one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/regex.h"
#include "format/json.h"

namespace temper {

// A piece of the text being cut. Views the normalized text, or a text made by a step (PreTokenizerScratch::made).
struct Piece {
  std::string_view text;
  bool at_start = false;  // begins where the whole text begins
};

// Buffers of one encoding at a time.
struct PreTokenizerScratch {
  RegexScratch regex;
  std::vector<Span> spans;
  std::vector<Piece> pieces, next;
  std::deque<std::string> made;  // a deque: views into its strings survive growth
  size_t limit = 0;              // bytes of text the steps may make in all
  size_t used = 0;
};

// Immutable; any thread, each with its own scratch.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Replaces scratch.pieces by what they are cut into; none is empty. Texts are valid UTF-8.
  virtual Status Apply(PreTokenizerScratch& scratch) const = 0;

  // A null `json` gives no steps. *bytes_out: the last step would write the pieces in the byte-level alphabet, and
  // leaves that to the model (BpeOptions::bytes_in). Asked for by a non-null pointer. `where` names the file in errors.
  static Result<std::vector<std::unique_ptr<PreTokenizer>>> FromJson(const Json& json, bool* bytes_out,
                                                                     const std::string& where);
};

}  // namespace temper

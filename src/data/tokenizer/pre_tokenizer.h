// Pre-tokenizers of tokenizer.json: how a text is cut into the words that the model encodes one by one.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "data/tokenizer/regex.h"
#include "format/json.h"

namespace temper {

// A piece of the text being cut. Views the text, or one that a step made of it.
struct Piece {
  std::string_view text;
  bool at_start = false;  // begins where the whole text begins
};

// Takes pieces one by one, none of them empty; what they view lives during the call.
using PieceVisitor = FunctionRef<Status(const Piece&)>;

// Buffers of one encoding at a time.
struct PreTokenizerScratch {
  std::deque<RegexScratch> regex;  // one per step: a step's search waits while the later steps cut what it found
  size_t limit = 0;                // bytes of text that the steps may make in all
  size_t made = 0;
};

// Immutable; any thread, each with its own scratch.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Hands on what `piece` (valid UTF-8) is cut into, in order.
  virtual Status Cut(const Piece& piece, RegexScratch& regex, PreTokenizerScratch& scratch,
                     PieceVisitor visit) const = 0;

  // A null `json` gives no steps. *bytes_out: the last step would write the pieces in the byte-level alphabet, and
  // leaves that to the model (BpeOptions::bytes_in). Asked for by a non-null pointer. `where` names the file in errors.
  static Result<std::vector<std::unique_ptr<PreTokenizer>>> FromJson(const Json& json, bool* bytes_out,
                                                                     const std::string& where);
};

// Cuts `piece` by all `steps`, one word at a time from the first step to the last: however long the text is, no list of
// its words exists. REQUIRES: scratch.limit is set.
Status CutIntoWords(std::span<const std::unique_ptr<PreTokenizer>> steps, const Piece& piece,
                    PreTokenizerScratch& scratch, PieceVisitor visit);

}  // namespace temper

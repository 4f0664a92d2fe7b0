// Pre-tokenizers of tokenizer.json: they cut a text into the words that the model encodes one by one.
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
#include "data/tokenizer/text_border.h"
#include "format/json.h"

namespace temper {

// A piece of the text being cut. Views the text, or a changed copy that a step made.
struct Piece {
  std::string_view text;
  bool at_start = false;  // begins where the whole text begins
};

// Takes pieces one by one, none of them empty; the viewed text lives during the call.
using PieceVisitor = FunctionRef<Status(const Piece&)>;

// Buffers of one encoding at a time.
struct PreTokenizerScratch {
  std::deque<RegexScratch> regex;  // one per step: later steps cut a step's pieces before its search continues
  size_t limit = 0;                // bytes of text that the steps may create in total
  size_t made = 0;
};

// Immutable; any thread, each with its own scratch.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts `piece` (valid UTF-8) and passes the parts on, in order.
  virtual Status Cut(const Piece& piece, RegexScratch& regex, PreTokenizerScratch& scratch,
                     PieceVisitor visit) const = 0;
  // As TextBorder says. REQUIRES: !border.cut.
  virtual bool Follow(TextBorder& border) const = 0;

  // A null `json` gives no steps. *bytes_out (if not null): set if the last step would write the pieces in the
  // byte-level alphabet; it then leaves that to the model (BpeOptions::bytes_in). `where` names the file in errors.
  static Result<std::vector<std::unique_ptr<PreTokenizer>>> FromJson(const Json& json, bool* bytes_out,
                                                                     const std::string& where);
};

// Cuts `piece` by all `steps`, one word at a time from the first step to the last, without ever listing all words of
// the text. REQUIRES: scratch.limit is set.
Status CutIntoWords(std::span<const std::unique_ptr<PreTokenizer>> steps, const Piece& piece,
                    PreTokenizerScratch& scratch, PieceVisitor visit);
// As TextBorder says, for all `steps`.
bool FollowIntoWords(std::span<const std::unique_ptr<PreTokenizer>> steps, TextBorder& border);

}  // namespace temper

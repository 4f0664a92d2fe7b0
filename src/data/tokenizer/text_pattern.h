// TextPattern: the search pattern of a Split or Replace of tokenizer.json: a literal string or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/text_border.h"
#include "format/json.h"

namespace temper {

// The error if steps of tokenizer.json make a text longer than any sane file does.
Status TooLong(size_t limit);
// How long they may make it: compatibility forms lengthen a text at most 11-fold, the byte-level alphabet 2-fold.
inline size_t GrowthLimit(size_t bytes) {
  return 64 * bytes + 65536;
}

// Immutable; any thread, each with its own scratch.
class TextPattern {
 public:
  // From an object with "pattern": {"String": ...} or {"Regex": ...}.
  static Result<TextPattern> FromJson(const Json& json, const std::string& where);
  static Result<TextPattern> OfRegex(std::string_view regex, const std::string& where);

  // As Regex::Cover.
  Status Cover(std::string_view text, RegexScratch& scratch, SpanVisitor visit) const;
  // Where matches and the text between them lie at a border.
  enum class At {
    kUncertain,
    kOutside,      // neither character is part of any match
    kMatchEnds,    // a match ends with the left one, always
    kMatchBegins,  // the right one is a match, always, and the left one is part of none
  };
  At Find(const TextBorder& border) const;
  // An error if `text` would grow beyond `limit` bytes; it is then unchanged.
  Status ReplaceAll(std::string& text, std::string_view content, size_t limit, RegexScratch& scratch) const;

 private:
  TextPattern() = default;

  std::string literal_;  // if there is no regex_
  std::optional<Regex> regex_;
};

}  // namespace temper

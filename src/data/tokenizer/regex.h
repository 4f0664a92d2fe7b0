// Regex: the regular expressions of tokenizer.json, which are Oniguruma's (Ruby syntax), run by PCRE2. What the two
// read differently (\s, \w, \h, scripts) is translated; what cannot be is an error at Compile, never a different match.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace temper {

// A part of a text: text.substr(begin, end - begin), a match or what lies between two.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Takes spans one by one; an error ends the search and is what it returns.
using SpanVisitor = FunctionRef<Status(const Span&)>;

// What one search at a time needs; made at the first. One thread at a time.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Immutable; may be used from any thread, each with its own scratch.
class Regex {
 public:
  // `where` names the file in errors.
  static Result<Regex> Compile(std::string_view pattern, const std::string& where);
  static std::string Escape(std::string_view literal);  // matches `literal` and nothing else

  // Covers `text` (valid UTF-8) with spans in order, matches and gaps; empty matches cut but have no length. Work is
  // limited to a multiple of the text's length; an expression that needs more ("catastrophic backtracking") is an
  // error. Memory does not grow with the text: a corpus has too many words to list.
  Status Cover(std::string_view text, RegexScratch& scratch, SpanVisitor visit) const;

 private:
  struct CodeDeleter {
    void operator()(void* code) const;
  };
  Regex() = default;

  std::unique_ptr<void, CodeDeleter> code_;  // pcre2_code
  std::string pattern_;                      // as in the file
  std::string where_;
};

}  // namespace temper

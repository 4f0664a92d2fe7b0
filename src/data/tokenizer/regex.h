// Regex: runs the regular expressions of tokenizer.json, which are Oniguruma's (Ruby
// syntax), with PCRE2. Constructs with another meaning there (\s, \w, \h, scripts) are
// translated. Those that cannot be are an error in Compile, never a different match.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace temper {

// A part of a text: text.substr(begin, end - begin), a match or the text between two.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Takes spans one by one; an error ends the search, which returns it.
using SpanVisitor = FunctionRef<Status(const Span&)>;

// Buffers of one search at a time; the first search allocates them. One thread at a time.
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

  // Covers `text` (valid UTF-8) with spans in order, matches and gaps; empty matches also cut. Work is limited to a
  // multiple of the text's length; an expression that needs more ("catastrophic backtracking") is an error. Memory does
  // not grow with the text: a corpus has too many words to list.
  Status Cover(std::string_view text, RegexScratch& scratch, SpanVisitor visit) const;

  const std::string& pattern() const { return pattern_; }  // as in the file

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

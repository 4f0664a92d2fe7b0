// Pattern: a regular expression over module paths and tensor names with PEFT's meaning:
// Python's re.fullmatch. PCRE2 runs it, which reads common patterns (lookaround, lazy
// repeats) as Python does. Patterns come from files, so work is bounded.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace temper {

// Immutable; may be used from any thread.
class Pattern {
 public:
  static Result<Pattern> Compile(const std::string& pattern);

  // Whether the whole of `path` matches. Error: the pattern backtracks without end on it.
  Result<bool> Matches(const std::string& path) const;

 private:
  struct CodeDeleter {
    void operator()(void* code) const;
  };
  Pattern() = default;

  std::unique_ptr<void, CodeDeleter> code_;  // pcre2_code
  std::string pattern_;
};

}  // namespace temper

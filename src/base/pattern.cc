#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

namespace temper {
namespace {

// A sane pattern takes some thousand steps on a path of 50 characters; this is a millisecond's worth.
constexpr uint32_t kMatchLimit = 100000;
// Real patterns are shorter than this by far; compiling takes time and memory in proportion to the length.
constexpr size_t kMaxPattern = 1 << 16;

std::string TextOf(int error) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

void Pattern::CodeDeleter::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Result<Pattern> Pattern::Compile(const std::string& pattern) {
  if (pattern.size() > kMaxPattern) {
    return InvalidArgument(fmt::format("a pattern of {} characters for names of modules", pattern.size()));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pattern compiled;
  compiled.pattern_ = pattern;
  compiled.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr));
  if (compiled.code_ == nullptr) {
    return InvalidArgument(
        fmt::format("'{}' is not a regular expression: {} at character {}", pattern, TextOf(error), offset + 1));
  }
  // Where there is no JIT, or not for this pattern, it is interpreted.
  (void)pcre2_jit_compile(static_cast<pcre2_code*>(compiled.code_.get()), PCRE2_JIT_COMPLETE);
  return compiled;
}

Result<bool> Pattern::Matches(const std::string& path) const {
  auto* const code = static_cast<pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, MatchDeleter> data(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchDeleter> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0, 0, data.get(), context.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return InvalidArgument(
      fmt::format("the pattern '{}' cannot be matched with '{}': {}", pattern_, path, TextOf(found)));
}

}  // namespace temper

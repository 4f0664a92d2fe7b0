// Where a word or a marker begins: texts that share its first bytes, such as <think> and <tool_call>, or Reasoning and
// Response, differ from there on for a tokenizer and for a reader. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace temper {

// The beginning of the word, or of the marker in angle or square brackets, that `at` lies inside of; `at` if it lies
// inside of none, also where one begins or ends. A word is letters, digits and _ of alphabets that put spaces between
// words (to U+1FFF); of all other text, such as Chinese, the beginning of the character. Looks at a few hundred bytes
// at most. REQUIRES: at <= text.size().
size_t WordStart(std::string_view text, size_t at);

// How many bytes both begin with, without a word or marker that only one of them has, or that they begin alike.
size_t CommonWords(std::string_view a, std::string_view b);

}  // namespace temper

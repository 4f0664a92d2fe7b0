// RegexBorder: what a regular expression of tokenizer.json does where two characters meet.
//
// The expression is read as a tree of parts that match one character. From the sets of characters with which parts may
// begin and end follows whether any match, or any assertion, reads the second character behind the first. If none
// does, the search before the border goes as it would if the text ended there: wherever it reads on, the second
// character fails as the end of the text does. And as nothing looks back, the search behind it goes as in a text of its
// own. Expressions with anchors, word borders, look-behind, back references or recursion are not followed.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

enum class RegexBorder : uint8_t {
  kUncertain,
  kOutside,    // neither character is part of any match
  kMatchEnds,  // a match ends with the first, always, and none reads the second
};

// `left` and `right`: one character each. `pattern` compiles (Regex::Compile). Takes some milliseconds.
RegexBorder BorderOf(std::string_view pattern, std::string_view left, std::string_view right);

}  // namespace temper

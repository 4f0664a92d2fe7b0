// What settings hold beside numbers, texts and enums. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace temper {

// Module names as in PEFT: one string ("all-linear" or a regular expression), or a list of names.
using TextOrList = std::variant<std::string, std::vector<std::string>>;

// Values for module names that match a pattern, in the order given (the first match counts).
using IntPatterns = std::vector<std::pair<std::string, int64_t>>;
using NumberPatterns = std::vector<std::pair<std::string, double>>;

// Whole numbers in the order given: [3, 5], or 3,5.
using IntList = std::vector<int64_t>;

// Pairs of texts in the order given: [[lm_head, "fsdp,tp"]].
using TextPairs = std::vector<std::pair<std::string, std::string>>;

// A whole number, or `auto`: then it is chosen later, and 1 until then.
struct NumberOrAuto {
  int64_t* number;
  bool* is_auto;
};

// A JSON object, as text; empty if it is not set.
struct JsonObject {
  std::string text;
};

}  // namespace temper

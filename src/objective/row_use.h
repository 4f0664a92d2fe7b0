// RowUse: what a method of training reads rows of data for (data/records.h).
#pragma once

#include <cstdint>

namespace temper {

enum class RowUse : uint8_t {
  kAnswers,    // an answer or a text each
  kFields,     // a row template: rows need no format
  kPairs,      // two answers each, of which one is better
  kRanked,     // the same, each judged as a whole, and a margin
  kRated,      // an answer each, and whether it is one to give (data/rating.h)
  kLabels,     // a text, a conversation or tokens, and a class (data/label.h)
  kSequences,  // the same, whether it has a class or not
};

}  // namespace temper

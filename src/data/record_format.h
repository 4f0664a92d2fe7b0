// RecordFormat: which fields the rows of a data file have (data/record.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

enum class RecordFormat : uint8_t {
  kTokens,
  kMessages,
  kConversations,
  kPromptCompletion,
  kQuestionAnswer,
  kInstruction,
  kText,
  kTextFile,  // not JSON: the file is one document
  kFields,    // any: a template gets all of them
  kPair,      // two answers to one prompt (data/pair.h)
};

// What rows are read for.
enum class RowUse : uint8_t {
  kAnswers,    // an answer or a text each
  kFields,     // a row template: rows need no format
  kPairs,      // two answers each, of which one is better
  kRanked,     // the same, each judged as a whole, and a margin
  kRated,      // an answer each, and whether it is one to give (data/rating.h)
  kLabels,     // a text, a conversation or tokens, and a class (data/label.h)
  kSequences,  // the same, whether it has a class or not
};

// For people: "prompt/completion".
std::string_view FormatName(RecordFormat format);

}  // namespace temper

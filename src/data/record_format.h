// RecordFormat: which fields the rows of a data file have (data/record.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "objective/row_use.h"

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

// For people: "prompt/completion".
std::string_view FormatName(RecordFormat format);

}  // namespace temper

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
};

// For people: "prompt/completion".
std::string_view FormatName(RecordFormat format);

}  // namespace temper

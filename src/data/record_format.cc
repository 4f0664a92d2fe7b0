#include "data/record_format.h"

namespace temper {

std::string_view FormatName(RecordFormat format) {
  switch (format) {
    case RecordFormat::kTokens:
      return "tokens (input_ids)";
    case RecordFormat::kMessages:
      return "messages";
    case RecordFormat::kConversations:
      return "conversations (ShareGPT)";
    case RecordFormat::kPromptCompletion:
      return "prompt/completion";
    case RecordFormat::kQuestionAnswer:
      return "question/answer";
    case RecordFormat::kInstruction:
      return "instruction (Alpaca)";
    case RecordFormat::kText:
      return "text";
    case RecordFormat::kTextFile:
      return "plain text file";
    case RecordFormat::kFields:
      return "fields of the row template";
    case RecordFormat::kPair:
      return "pairs (chosen/rejected)";
  }
  return "?";
}

}  // namespace temper

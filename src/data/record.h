// Record: one row of a data file in Temper's own terms, independent of the names of the file's fields.
//
//   format                      fields                                                          becomes
//   tokens                      input_ids [, labels, attention_mask]                            kTokens
//   messages                    messages [, tools, system], or the row is the list itself       kMessages
//   conversations (ShareGPT)    conversations: [{from, value}] [, tools, system]                kMessages
//   prompt/completion           prompt, completion [, system]; lists of messages, too           kPrompt (kMessages)
//   question/answer             question, answer [, context, system]                            kPrompt
//   instruction (Alpaca, Dolly) instruction [, input, context, system, history], output or      kPrompt (kMessages)
//                               response
//   text                        text                                                            kText
//
// For preferences (RecordFormat::kPair) a row has two answers: it becomes a kPair of two of these records
// (data/pair.h). With a row template (RecordFormat::kFields) a row may have any fields: they become kFields, and none
// is special.
//
// A row with the fields of several formats is read as the first in this list. A row that is an object may have a
// "weight" in every format, and "chat_template_kwargs" in every one that goes through a chat template. Other fields are
// named in `unread`, or refused (data/row_fields.h). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/column_map.h"
#include "data/record_format.h"
#include "data/template/token_weight.h"
#include "format/json.h"
#include "format/row_reading.h"

namespace temper {

// The field of a row with variables of its own for the chat template.
inline constexpr const char* kTemplateVariables = "chat_template_kwargs";

enum class RecordKind : uint8_t { kPrompt, kMessages, kText, kTokens, kFields, kPair };

struct Record {
  RecordKind kind = RecordKind::kText;
  std::string where;                 // "data.jsonl line 12", for errors
  TokenWeight weight = kUnitWeight;  // of all its tokens; 0: none counts toward the loss

  // kPrompt. is_instruction: question and answer (also Alpaca), not the two halves of one text.
  std::string system, prompt, completion;
  bool is_instruction = false;

  // kMessages: a list of {role, content, ...} as chat templates take it: content is a
  // string, arguments of tool calls are objects, and "weight" says how much an assistant's
  // message counts in the loss (NormalizeMessages). `tools` is null or a list.
  OrderedJson messages, tools;

  // Of kMessages and instructions: the template's variables for this row, which win over the run's. Null if there are
  // none.
  OrderedJson template_variables;
  std::vector<std::string> unread;  // the row's fields that are not in this record

  std::string text;  // kText

  OrderedJson fields;  // kFields: the row, an object

  std::vector<Record> answers;  // kPair: the chosen one, then the rejected one
  float margin = 0;             // of RowUse::kRanked: by how much the chosen one is better

  bool desirable = true;  // of RowUse::kRated: the answer is one to give

  std::optional<std::string> label;  // of a row that is judged as a whole (data/label.h): its class

  // kTokens; labels as in Hugging Face: negative means masked, otherwise equal to the token.
  std::vector<int32_t> input_ids, labels;
};

// The format whose fields `row` has. If there is none, the error names the fields that it has. `columns`: those that
// were given for the row's fields, or null; a format for which some were given goes before those without.
Result<RecordFormat> DetectFormat(const OrderedJson& row, const std::string& where, const ColumnMap* columns = nullptr);

// The error for a row of which pairs are wanted.
Status NoPair(const OrderedJson& row, const std::string& where);

// `row` read as `format`. `separator`: between the fields that a prompt is made of. Errors name `where` and the field.
Result<Record> MakeRecord(OrderedJson row, RecordFormat format, const std::string& where,
                          const std::string& separator = kParagraph);

// The prompt and the answer without a chat template: system prompt and prompt are paragraphs; a space separates
// question and answer. REQUIRES: kPrompt.
std::string PromptText(const Record& record);
std::string CompletionText(const Record& record);

// The same as one user turn and its answer, for models with a chat template. REQUIRES: kPrompt.
Record AsConversation(const Record& record);

}  // namespace temper

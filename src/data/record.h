// Record: one row of a data file in Temper's own terms, whatever names the file's author gave its fields.
//
//   format                      fields                                                          becomes
//   tokens                      input_ids [, labels, attention_mask]                            kTokens
//   messages                    messages [, tools, system], or the row is the list itself       kMessages
//   conversations (ShareGPT)    conversations: [{from, value}] [, tools, system]                kMessages
//   prompt/completion           prompt, completion [, system]; lists of messages, too           kPrompt (kMessages)
//   question/answer             question, answer [, system]                                     kPrompt
//   instruction (Alpaca)        instruction [, input, system, history], output or response      kPrompt (kMessages)
//   text                        text                                                            kText
//
// A row that has the fields of several formats has the first of this list. A row that is an object may have a "weight",
// whatever its format. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/token_weight.h"
#include "format/json.h"

namespace temper {

enum class RecordFormat : uint8_t {
  kTokens,
  kMessages,
  kConversations,
  kPromptCompletion,
  kQuestionAnswer,
  kInstruction,
  kText,
  kTextFile,  // no JSON: the file is one document
};

// "prompt/completion": as a person would say it.
std::string_view FormatName(RecordFormat format);

enum class RecordKind : uint8_t { kPrompt, kMessages, kText, kTokens };

struct Record {
  RecordKind kind = RecordKind::kText;
  std::string where;                 // "data.jsonl line 12", for errors
  TokenWeight weight = kUnitWeight;  // of all its tokens; 0: nothing is learnt from it

  // kPrompt. is_instruction: question and answer (Alpaca, too) rather than the two halves of one text.
  std::string system, prompt, completion;
  bool is_instruction = false;

  // kMessages: a list of {role, content, ...} as chat templates take it: content is a string, arguments of tool calls
  // are objects, and "weight" says how much is learnt from what an assistant wrote (NormalizeMessages). `tools` is null
  // or a list.
  OrderedJson messages, tools;

  std::string text;  // kText

  // kTokens; labels as Hugging Face means them: negative is not trained on, otherwise equal to the token.
  std::vector<int32_t> input_ids, labels;
};

// The format whose fields `row` has. Error: none; names the fields it does have.
Result<RecordFormat> DetectFormat(const OrderedJson& row, const std::string& where);

// `row` read as `format`. Errors name `where` and the field.
Result<Record> MakeRecord(OrderedJson row, RecordFormat format, const std::string& where);

// What generation is given and what it should answer, where no chat template is used: system prompt and prompt are
// paragraphs; question and answer are kept apart by a space. REQUIRES: kPrompt.
std::string PromptText(const Record& record);
std::string CompletionText(const Record& record);

// The same as one user turn and its answer, for models that are talked to through a chat template. REQUIRES: kPrompt.
Record AsConversation(const Record& record);

}  // namespace temper

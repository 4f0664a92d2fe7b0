// Prompts: what `generate` answers many of, read from a file. A .txt file has a prompt on each line that is not blank;
// any other is read as data for training is (data/record.h), of which the answer may be missing: prompt, question,
// instruction, text, messages or conversations. The last answer of a conversation is left out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "format/json.h"

namespace temper {

struct Prompt {
  std::string where;            // "prompts.jsonl line 3", for errors
  std::string text;             // to continue, or with --chat a user's message; unless there are messages
  OrderedJson turns;            // the same with --chat, where its row says more than the text; null: it does not
  OrderedJson messages, tools;  // a conversation up to the answer; null: there is none
  OrderedJson variables;        // of its own, for the chat template; null: none
};

// In the order of the file. Errors: a row without a prompt, one of tokens, no prompts at all.
Result<std::vector<Prompt>> ReadPrompts(Env& env, const std::string& path);

// A prompt and its answer as a row of data: {"prompt", "completion"}, or {"messages"} with the answer as the last.
std::string AnsweredRow(const Prompt& prompt, const std::string& answer);

}  // namespace temper

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
#include "format/row_reading.h"

namespace temper {

struct Prompt {
  std::string where;            // "prompts.jsonl line 3", for errors
  std::string text;             // to continue, or with --chat a user's message; unless there are messages
  OrderedJson turns;            // the same with --chat, where its row says more than the text; null: it does not
  OrderedJson messages, tools;  // a conversation up to the answer; null: there is none
  OrderedJson variables;        // of its own, for the chat template; null: none
  // What its answered row has beside prompt and answer, so that it can be told which row it was: its system message and
  // variables, and the fields that no format reads.
  OrderedJson system, others;
};

// In the order of the file. `reading`: what its speakers are called, what stands between the fields of a prompt.
// Errors: a row without a prompt, one of tokens, no prompts at all.
Result<std::vector<Prompt>> ReadPrompts(Env& env, const std::string& path, const RowReading& reading = {});

// A prompt and its answer as a row of data: {"system", "prompt", "completion"}, or {"messages", "tools"} with the
// answer as the last message; then what else the prompt's row had. Read as data for training it gives the same
// conversation.
std::string AnsweredRow(const Prompt& prompt, const std::string& answer);

}  // namespace temper

// Converts conversations from the forms that data sets use to what chat templates take. Pure functions; any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/template/token_weight.h"
#include "format/json.h"

namespace temper {

// ShareGPT turns ({from: human, value}, also {role, content}) to messages; function_call and observation turns become
// tool calls and tool messages.
Result<OrderedJson> MessagesFromShareGpt(const OrderedJson& turns, const std::string& where);

// Checks OpenAI messages and normalizes them: text parts of a content are joined, arguments of tool calls that are JSON
// text are parsed, and the keys for how much a message counts in the loss (weight, loss_weight, loss, train) become one
// "weight", a multiple of 2^-16, which is left out if it is 1.
Status NormalizeMessages(OrderedJson& messages, const std::string& where);

// Of a normalized message: is it an assistant's that counts toward the loss?
bool IsSupervised(const OrderedJson& message);
// Of a normalized message.
TokenWeight WeightOf(const OrderedJson& message);
// Of a normalized message: is its content empty or white space?
bool HasNoText(const OrderedJson& message);
// And does it say nothing else either, no tool call and no reasoning?
bool IsEmpty(const OrderedJson& message);
// The names of the functions of `list`, a row's tools or a message's tool calls. A text that lacks one leaves it out.
std::vector<std::string> FunctionsOf(const OrderedJson& list);

// Where a message may have the assistant's reasoning; the first that is there counts.
inline constexpr std::array<const char*, 3> kReasoningKeys = {"reasoning_content", "thinking", "reasoning"};
// Null if it is under none of them.
const OrderedJson* ReasoningOf(const OrderedJson& message);
// Many data sets put it into the content: "<think>Easy.</think>4". The two parts of such a content; without a
// </think> the first is empty and the second is all of it.
struct ThoughtAndSaid {
  std::string_view thought, said;
};
ThoughtAndSaid SplitThought(std::string_view content);

// A list of tools in OpenAI's form, from that form, a bare list of functions, or either as JSON text. Null if absent.
Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where);

// Whether a text is a list or an object as Python prints it, with single quotes: what pandas writes into a table.
bool IsPythonText(std::string_view text);
// What to tell the user of it. `what`: "data.csv row 1 (line 2): 'messages'".
std::string PythonText(const std::string& what);

}  // namespace temper

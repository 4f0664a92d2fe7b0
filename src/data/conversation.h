// Converts conversations from the forms that data sets use to what chat templates take. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "data/token_weight.h"
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
// The names of the functions that a row's tools and tool calls are about. A text that lacks one leaves it out.
std::vector<std::string> FunctionsOf(const OrderedJson& messages, const OrderedJson& tools);

// A list of tools in OpenAI's form, from that form, a bare list of functions, or either as JSON text. Null if absent.
Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where);

}  // namespace temper

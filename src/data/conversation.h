// Conversations as chat templates take them, from the forms in which data sets hold them. Pure functions; any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "data/token_weight.h"
#include "format/json.h"

namespace temper {

// ShareGPT turns ({from: human, value}, also {role, content}) to messages; function_call and observation turns become
// tool calls and tool messages.
Result<OrderedJson> MessagesFromShareGpt(const OrderedJson& turns, const std::string& where);

// Checks OpenAI messages and makes them plain: content parts of text are joined, arguments of tool calls that are JSON
// text are parsed, and the keys that tell how much to learn from a message (weight, loss_weight, loss, train) become
// one "weight", a multiple of 2^-16, which is left out where it is 1.
Status NormalizeMessages(OrderedJson& messages, const std::string& where);

// As NormalizeMessages leaves them: is this an assistant's message that is to be learnt?
bool IsLearnt(const OrderedJson& message);
// As NormalizeMessages leaves it.
TokenWeight WeightOf(const OrderedJson& message);

// A list of tools in OpenAI's form from that form, a bare list of functions, or either as JSON text. Null where absent.
Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where);

}  // namespace temper

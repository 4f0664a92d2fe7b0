// Conversations as chat templates take them, from the forms in which data sets hold them. Pure functions; any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "format/json.h"

namespace temper {

// ShareGPT turns ({from: human, value}, also {role, content}) to messages; function_call and observation turns become
// tool calls and tool messages.
Result<OrderedJson> MessagesFromShareGpt(const OrderedJson& turns, const std::string& where);

// Checks OpenAI messages and makes them plain: content parts of text are joined, arguments of tool calls that are JSON
// text are parsed, and of the keys that tell what to learn (weight, loss_weight, loss, train) a "weight": 0 remains
// where a message is not to be learnt from.
Status NormalizeMessages(OrderedJson& messages, const std::string& where);

// As NormalizeMessages leaves them: is this an assistant's message that is to be learnt?
bool IsLearnt(const OrderedJson& message);

// A list of tools in OpenAI's form from that form, a bare list of functions, or either as JSON text. Null where absent.
Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where);

}  // namespace temper

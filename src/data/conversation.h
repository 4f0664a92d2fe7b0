// Conversations as chat templates take them, from the forms in which data sets hold them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

// ShareGPT turns ({from: human, value}, also {role, content}) to messages; function_call and observation turns become
// tool calls and tool messages.
Result<OrderedJson> MessagesFromShareGpt(const OrderedJson& turns, const std::string& where);

// Checks OpenAI messages and makes them plain: content parts of text are joined, arguments of tool calls that are JSON
// text are parsed, keys that tell what to train on (weight, loss_weight, loss, train) go to `trained`.
Status NormalizeMessages(OrderedJson& messages, std::vector<uint8_t>& trained, const std::string& where);

// A list of tools in OpenAI's form from that form, a bare list of functions, or either as JSON text. Null where absent.
Result<OrderedJson> NormalizeTools(const OrderedJson& tools, const std::string& where);

}  // namespace temper

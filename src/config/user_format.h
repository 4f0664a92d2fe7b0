// A prompt style of one's own in Axolotl, `type: {format: "[INST] {instruction} [/INST]", field_instruction: q, ...}`,
// as a row template. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "format/json.h"

namespace temper {

// The template that makes of a row what Axolotl does (prompt_strategies/user_defined.py, alpaca_w_system.py): the
// system prompt, the format with or without an input, and the answer, which counts. nullopt: `type` is no such mapping,
// or has what a template cannot say: a key that is not known, a format with other fields, a column that is no name.
std::optional<std::string> RowTemplateOf(const OrderedJson& type);

}  // namespace temper

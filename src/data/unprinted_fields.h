// UnprintedFields: what a chat template leaves out of a conversation. The model neither learns it nor sees it.
//
//   reasoning   of an assistant's turn, under any name or as <think> ... </think> in its content: not in the text of
//               the turn that counts. In the turns after it a template may leave it out.
//   tool_calls  the name of a function that a turn calls is not in that text
//   tools       the name of a function that the row offers is in no text
//   any other   field of a message, also its content: no text has what it says, and the template prints the same
//               without it
//
// A role, a weight and the ids that join calls to their results say nothing; nor do numbers and empty values.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/template/chat_template.h"
#include "format/json.h"

namespace temper {

struct UnprintedField {
  std::string name;
  std::optional<size_t> message;  // its index; of the row itself if there is none
};

// `chats`: the texts of a row with these normalized messages and tools. `all_counts`: not only the assistant's turns
// count toward the loss (train_on_prompt). Costs a few readings of the texts (printed_texts.h), and where
// a field seems to be left out 2 to 17 renderings of the row: where the template prints other fields that were not
// found in another way, those are told apart by name, role and message as far as these suffice.
std::vector<UnprintedField> FindUnprintedFields(const ChatTemplate& chat_template, const OrderedJson& messages,
                                                const OrderedJson& tools, const ChatOptions& options,
                                                std::span<const RenderedChat> chats, bool all_counts);

}  // namespace temper

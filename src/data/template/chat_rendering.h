// Input and output of rendering a conversation.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "data/template/jinja.h"
#include "format/json.h"

namespace temper {

// {"bos_token", "<s>"}, ...
using ChatSpecialTokens = std::vector<std::pair<std::string, std::string>>;

struct ChatOptions {
  // The time that strftime_now formats. Fixed by the caller, so that a run can be repeated.
  std::tm today = Epoch();
  // More variables for the template, e.g. {"enable_thinking": false, "date_string": "26 Jul 2024"}; null for none.
  // They win over the special tokens. Must outlive the call.
  const OrderedJson* variables = nullptr;
  RenderLimits limits;
  Bytes all_renderings = GiB(1);  // of one conversation, which takes seconds; a longer one is an error
  // One text, in which earlier turns are as the template prints them in the whole conversation, instead of one for each
  // turn that it prints otherwise where the turn is the last.
  bool one_text = false;
  // Called with the prompt of a turn (P in chat_template.h): whether the turn is
  // beyond what the caller can use. Then it and all later ones are left out, but never
  // the first of a conversation. Null: none is. Called from the thread that renders.
  std::function<bool(std::string_view prompt)> is_beyond;
};

// Error: `variables` sets what every template gets from its caller. `what` names them.
Status CheckVariables(const OrderedJson& variables, const std::string& what);

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> assistant;  // never empty; ascending, disjoint, none of them empty or all of the text
  std::vector<size_t> messages;     // of each span: the index of its message, from 0
  // The rest of the conversation after `text` if turns were left out (is_beyond): for counting.
  std::string beyond;
};

}  // namespace temper

// What a conversation is rendered with, and what comes out.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/jinja.h"
#include "format/json.h"

namespace temper {

// {"bos_token", "<s>"}, ...
using ChatSpecialTokens = std::vector<std::pair<std::string, std::string>>;

struct ChatOptions {
  // What strftime_now gives a template. Fixed by the caller, so that a run can be repeated.
  std::tm today = Epoch();
  // More variables for the template, e.g. {"enable_thinking": false, "date_string": "26 Jul 2024"}; null for none.
  // They win over the special tokens. Must outlive the call.
  const OrderedJson* variables = nullptr;
  RenderLimits limits;
  // Asked with the prompt of a turn (P below): whether the turn lies beyond what the caller can use. Then it and all
  // later ones are left out; the first of a conversation never is. Null: none does. Called from the thread that
  // renders.
  std::function<bool(std::string_view prompt)> is_beyond;
};

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> assistant;  // never empty; ascending, disjoint, none of them empty or all of the text
  std::vector<size_t> messages;     // of each span: which message it is of, from 0
  // What the conversation goes on with behind `text` where turns were left out (is_beyond): to be counted.
  std::string beyond;
};

}  // namespace temper

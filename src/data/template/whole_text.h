// Where the words of an earlier turn are in the text of the whole conversation, in which a template may print less of
// them than in the text that ends with the turn (ChatOptions::one_text). For chat_spans.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "data/template/chat_renderer.h"

namespace temper {

struct WholeText {
  const std::string& text;
  // The same with other words of a message.
  std::function<Result<RenderedTemplate>(const ChatRenderer::OtherWords&)> render;
  size_t begins = 0;  // no words of the turn before this: the end of its prompt, where the text begins with that
  // What follows the words in the text that ends with the turn, with such other words.
  std::function<Result<std::string>(const ChatRenderer::OtherWords&)> behind;
  const std::string& eos_token;
};

// The words of `message`, and behind them what ends the turn if that is printed as after a last turn. Found by
// rendering the text twice with other words in their place. nullopt: the template prints nothing of the turn. Error:
// the text before or behind it depends on what it says.
Result<std::optional<TextSpan>> WordsInWhole(const WholeText& whole, size_t message, bool says_more);

}  // namespace temper

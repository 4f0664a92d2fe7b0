// Renders prefixes of one conversation, for ChatTemplate and for the derivation of spans.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "data/template/chat_rendering.h"
#include "data/template/value.h"

namespace temper {

// One conversation, ready to be rendered up to any message. Refers to its inputs.
class ChatRenderer {
 public:
  struct Message {
    jinja::Value value;  // without the keys "weight" and "train"
    bool assistant = false;
    bool supervised = false;
  };

  static Result<ChatRenderer> Make(const Template& jinja_template, const ChatSpecialTokens& special_tokens,
                                   const OrderedJson& messages, const OrderedJson& tools, const ChatOptions& options);

  const std::vector<Message>& messages() const { return messages_; }
  const Template& jinja_template() const { return *template_; }
  const std::function<bool(std::string_view)>& is_beyond() const { return *is_beyond_; }
  Bytes all_renderings() const { return all_renderings_; }
  bool one_text() const { return one_text_; }

  // What the last message, or another one, says instead of its own words.
  struct OtherWords {
    const char* content = nullptr;
    bool alone = false;  // also without its tool calls and reasoning
    std::optional<size_t> message = std::nullopt;
  };
  // Whether the message says more than its content: tool calls or reasoning.
  bool SaysMore(size_t message) const;

  // Renders the first `count` messages. `instead`: if not null, the words of one of them.
  Result<RenderedTemplate> Render(size_t count, bool add_generation_prompt, const OtherWords* instead = nullptr) const;

 private:
  explicit ChatRenderer(const Template& t) : template_(&t) {}

  const Template* template_;
  std::vector<Message> messages_;
  Template::Variables variables_;  // all but the messages
  RenderOptions options_;
  Bytes all_renderings_;
  bool one_text_ = false;
  const std::function<bool(std::string_view)>* is_beyond_ = nullptr;
};

// The texts and spans of a conversation; `eos_token` may be empty.
Result<std::vector<RenderedChat>> DeriveSpans(const ChatRenderer& chat, const std::string& eos_token);

}  // namespace temper

// A model's chat template: renders conversations as text, and as text with the spans that training supervises.
//
// The assistant's text is supervised, with its end-of-turn token, in every turn that the data does not exclude. A span
// is right if the text before it is exactly the model's prompt for that turn:
//
//   prompt  P = the messages before the turn, rendered with add_generation_prompt
//   turn    F = the same messages and the turn
//   span    [|P|, |F|)                     where P is a prefix of F
//
// Several turns share one text T only if each one's F is a prefix of T. Templates that rewrite earlier turns (Qwen3
// drops their <think> blocks) break that; then the conversation becomes several texts, each supervising the turns that
// are unchanged in it, so that every turn is still trained exactly as it will be used. See chat_spans.cc for the steps
// and their cost, docs/design/chat_spans.md for the reasons.
//
// A ChatTemplate is immutable: any number of threads may use it at once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/template/chat_rendering.h"
#include "data/template/jinja.h"
#include "data/template/known_templates.h"
#include "format/json.h"

namespace temper {

inline constexpr char kChatTemplateFile[] = "chat_template.jinja";
inline constexpr char kMoreChatTemplates[] = "additional_chat_templates";  // a folder of NAME.jinja

// The templates of a folder by name: "default" and perhaps others.
using TemplateSources = std::map<std::string, TemplateSource>;
bool HaveSameTexts(const TemplateSources& a, const TemplateSources& b);
// The files in which transformers keeps these templates, with their texts. Leaves out names that are no file's.
std::map<std::string, std::string> FilesOfTemplates(const TemplateSources& sources);

class ChatTemplate {
 public:
  // The template of a model folder, or nullopt if it has none. Searched, as in transformers, in chat_template.jinja and
  // additional_chat_templates/*.jinja, then "chat_template" of tokenizer_config.json (a text, or a list of {name,
  // template}), then chat_template.json. A template named "tool_use" is used if there are tools. bos_token, eos_token
  // and the like come from tokenizer_config.json or special_tokens_map.json. `instead`: replaces all templates of the
  // folder.
  static Result<std::optional<ChatTemplate>> Load(Env& env, const std::string& model_folder,
                                                  const std::optional<TemplateSources>& instead = std::nullopt);
  // The folder's templates as they are searched, of which "default" is used without tools.
  static Result<std::optional<TemplateSources>> SourcesIn(Env& env, const std::string& model_folder);
  // `where` names the template in errors.
  static Result<ChatTemplate> FromSource(std::string source, std::string where, ChatSpecialTokens special_tokens = {});

  // `messages`: an array of objects with a "role"; `tools`: an array of JSON schemas, or null (same as an empty array).
  Result<std::string> Render(const OrderedJson& messages, const OrderedJson& tools, bool add_generation_prompt,
                             const ChatOptions& options = {}) const;

  // Error: a role that is not one of the usual ones (system, developer, user, assistant, tool, function) and that the
  // template does not name. Many templates would print it all the same.
  Status CheckRoles(const OrderedJson& messages) const;

  // The texts to train on, usually one. A message with "weight": 0 or "train": false is not supervised (neither key
  // reaches the template). Text after the last supervised turn is cut off. Errors: nothing is supervised, a turn's span
  // cannot be derived, or the conversation is too long for that (chat_spans.cc).
  Result<std::vector<RenderedChat>> RenderWithSpans(const OrderedJson& messages, const OrderedJson& tools,
                                                    const ChatOptions& options = {}) const;

  // What the template prints behind the last message of the assistant: "<|im_end|>\n". Empty if it cannot be found.
  std::string TurnEnd() const;

  const std::string& where() const { return default_.where(); }
  // All texts that rendering depends on besides its arguments.
  std::string sources() const;
  const ChatSpecialTokens& special_tokens() const { return special_tokens_; }
  // By role, "eos_token"; empty if the model names none.
  std::string SpecialToken(std::string_view role) const;
  std::string eos_token() const { return SpecialToken("eos_token"); }

 private:
  explicit ChatTemplate(Template t) : default_(std::move(t)) {}

  Template default_;
  std::optional<Template> tool_use_;
  ChatSpecialTokens special_tokens_;
};

}  // namespace temper

#include "data/template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "data/template/chat_renderer.h"
#include "format/quoted.h"

namespace temper {
namespace {

// tokenizer_config.json lists added tokens, at most some thousand.
constexpr Bytes kMaxConfig = MiB(64);
constexpr char kTokenizerConfig[] = "tokenizer_config.json", kDefault[] = "default";
constexpr std::string_view kSuffix = ".jinja";

Result<Json> ReadObject(Env& env, const std::string& path) {
  if (!env.IsFile(path)) return Json::object();
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxConfig));
  TEMPER_ASSIGN_OR_RETURN(Json json, ParseJson(text, path));
  if (!json.is_object()) return Corrupt(fmt::format("{}: should be an object but is {}", path, json.type_name()));
  return json;
}

// "chat_template" of a JSON file: a text, or a list of {name, template}, or an object of texts by name.
Status AddTemplateFromJson(const Json& config, const std::string& path, TemplateSources& sources) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return OkStatus();
  const auto malformed = [&] {
    return Corrupt(fmt::format("{}: 'chat_template' should be a text or a list of {{name, template}}", path));
  };
  const auto add = [&](const Json& name, const Json& source) {
    if (!name.is_string() || !source.is_string()) return malformed();
    const std::string key = name.get<std::string>();
    sources[key] = {source.get<std::string>(),
                    fmt::format("{}, chat_template{}", path, key == kDefault ? "" : " " + key)};
    return OkStatus();
  };
  if (it->is_string()) return add(kDefault, *it);
  if (it->is_object()) {
    for (const auto& [name, source] : it->items()) TEMPER_RETURN_IF_ERROR(add(name, source));
    return OkStatus();
  }
  if (!it->is_array()) return malformed();
  for (const Json& entry : *it) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) return malformed();
    TEMPER_RETURN_IF_ERROR(add(entry["name"], entry["template"]));
  }
  return OkStatus();
}

Status AddFromFiles(Env& env, const std::string& folder, TemplateSources& sources) {
  const auto add = [&](const std::string& name, const std::string& path) -> Status {
    TEMPER_ASSIGN_OR_RETURN(std::string source, ReadTextFile(env, path, kMaxChatTemplate));
    sources[name] = {std::move(source), path};
    return OkStatus();
  };
  const std::string main = JoinPath(folder, kChatTemplateFile);
  if (env.IsFile(main)) TEMPER_RETURN_IF_ERROR(add(kDefault, main));
  const std::string more = JoinPath(folder, kMoreChatTemplates);
  if (!env.IsFolder(more)) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(more));
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    TEMPER_RETURN_IF_ERROR(add(name.substr(0, name.size() - kSuffix.size()), JoinPath(more, name)));
  }
  return OkStatus();
}

// The special tokens that transformers passes to every template,
// if the model has them. A token is a text or {"content": text}.
ChatSpecialTokens ReadSpecialTokens(const Json& config, const Json& map) {
  ChatSpecialTokens out;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    for (const Json* object : {&config, &map}) {
      const auto it = object->find(key);
      if (it == object->end()) continue;
      const Json* token = &*it;
      if (token->is_object() && token->contains("content")) token = &(*token)["content"];
      if (token->is_string()) {
        out.emplace_back(key, token->get<std::string>());
        break;
      }
      if (it->is_null()) break;  // the model says that it has none
    }
  }
  return out;
}

// Of a folder with this tokenizer_config.json: none, or "default" and others.
Result<TemplateSources> ReadSources(Env& env, const std::string& folder, const Json& config) {
  TemplateSources sources;
  TEMPER_RETURN_IF_ERROR(AddFromFiles(env, folder, sources));
  if (sources.empty()) TEMPER_RETURN_IF_ERROR(AddTemplateFromJson(config, JoinPath(folder, kTokenizerConfig), sources));
  if (sources.empty()) {
    const std::string path = JoinPath(folder, "chat_template.json");
    TEMPER_ASSIGN_OR_RETURN(const Json json, ReadObject(env, path));
    TEMPER_RETURN_IF_ERROR(AddTemplateFromJson(json, path, sources));
  }
  if (sources.empty() || sources.contains(kDefault)) return sources;
  std::string names;
  for (const auto& [name, source] : sources) names += (names.empty() ? "" : ", ") + name;
  return NotFound(
      fmt::format("{}: the model has chat templates ({}) but none is named 'default'; write the one to use to {}",
                  folder, names, kChatTemplateFile));
}

}  // namespace

bool HaveSameTexts(const TemplateSources& a, const TemplateSources& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && x.second.text == y.second.text; });
}

std::map<std::string, std::string> FilesOfTemplates(const TemplateSources& sources) {
  std::map<std::string, std::string> files;
  for (const auto& [name, source] : sources) {
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    if (plain)
      files[name == kDefault ? kChatTemplateFile : JoinPath(kMoreChatTemplates, name) + std::string(kSuffix)] =
          source.text;
  }
  return files;
}

Result<std::optional<ChatTemplate>> ChatTemplate::Load(Env& env, const std::string& model_folder,
                                                       const std::optional<TemplateSources>& instead) {
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadObject(env, JoinPath(model_folder, kTokenizerConfig)));
  TemplateSources sources;
  if (instead) {
    sources = *instead;
  } else {
    TEMPER_ASSIGN_OR_RETURN(sources, ReadSources(env, model_folder, config));
  }
  if (sources.empty()) return std::optional<ChatTemplate>();
  TEMPER_ASSIGN_OR_RETURN(const Json map, ReadObject(env, JoinPath(model_folder, "special_tokens_map.json")));
  const TemplateSource& main = sources.at(kDefault);
  TEMPER_ASSIGN_OR_RETURN(ChatTemplate out, FromSource(main.text, main.where, ReadSpecialTokens(config, map)));
  if (const auto it = sources.find("tool_use"); it != sources.end()) {
    TEMPER_ASSIGN_OR_RETURN(Template tool_use, Template::Parse(it->second.text, it->second.where));
    out.tool_use_ = std::move(tool_use);
  }
  return std::optional<ChatTemplate>(std::move(out));
}

Result<std::optional<TemplateSources>> ChatTemplate::SourcesIn(Env& env, const std::string& model_folder) {
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadObject(env, JoinPath(model_folder, kTokenizerConfig)));
  TEMPER_ASSIGN_OR_RETURN(TemplateSources sources, ReadSources(env, model_folder, config));
  if (sources.empty()) return std::optional<TemplateSources>();
  return std::optional(std::move(sources));
}

Result<ChatTemplate> ChatTemplate::FromSource(std::string source, std::string where, ChatSpecialTokens special_tokens) {
  TEMPER_ASSIGN_OR_RETURN(Template parsed, Template::Parse(std::move(source), std::move(where)));
  ChatTemplate out(std::move(parsed));
  out.special_tokens_ = std::move(special_tokens);
  return out;
}

std::string ChatTemplate::sources() const {
  std::string out = default_.source();
  if (tool_use_) out += "\n" + tool_use_->source();
  for (const auto& [name, token] : special_tokens_) out += fmt::format("\n{} {}", name, token);
  return out;
}

std::string ChatTemplate::SpecialToken(std::string_view role) const {
  for (const auto& [name, token] : special_tokens_) {
    if (name == role) return token;
  }
  return "";
}

std::string ChatTemplate::TurnEnd() const {
  constexpr std::string_view kAnswer = "Qzx7answer";
  const OrderedJson messages = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", kAnswer}}};
  const auto text = Render(messages, nullptr, /*add_generation_prompt=*/false);
  const size_t at = text.ok() ? text->rfind(kAnswer) : std::string::npos;
  return at == std::string::npos ? "" : text->substr(at + kAnswer.size());
}

Status ChatTemplate::CheckRoles(const OrderedJson& messages) const {
  constexpr std::string_view kUsual[] = {"system", "developer", "user", "assistant", "tool", "function"};
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& message = messages[i];
    const auto it = message.is_object() ? message.find("role") : message.end();
    if (it == message.end() || !it->is_string()) continue;  // Render reports it
    const std::string& role = it->get_ref<const std::string&>();
    // Granite's "document 3": the name is the first word.
    const std::string_view name = std::string_view(role).substr(0, role.find(' '));
    const bool usual = std::find(std::begin(kUsual), std::end(kUsual), role) != std::end(kUsual);
    const auto names_it = [&](const Template& t) {
      return !name.empty() && (t.source().find(fmt::format("'{}", name)) != std::string::npos ||
                               t.source().find(fmt::format("\"{}", name)) != std::string::npos);
    };
    if (usual || names_it(default_) || (tool_use_ && names_it(*tool_use_))) continue;
    return InvalidArgument(fmt::format("message {}: unknown role {}; known are {} (--roles user=NAME says who speaks)",
                                       i + 1, Quoted(role), fmt::join(kUsual, ", ")));
  }
  return OkStatus();
}

Result<std::string> ChatTemplate::Render(const OrderedJson& messages, const OrderedJson& tools,
                                         bool add_generation_prompt, const ChatOptions& options) const {
  const Template& chosen = tool_use_ && tools.is_array() && !tools.empty() ? *tool_use_ : default_;
  TEMPER_ASSIGN_OR_RETURN(const ChatRenderer chat,
                          ChatRenderer::Make(chosen, special_tokens_, messages, tools, options));
  TEMPER_ASSIGN_OR_RETURN(RenderedTemplate rendered, chat.Render(chat.messages().size(), add_generation_prompt));
  return std::move(rendered.text);
}

Result<std::vector<RenderedChat>> ChatTemplate::RenderWithSpans(const OrderedJson& messages, const OrderedJson& tools,
                                                                const ChatOptions& options) const {
  const Template& chosen = tool_use_ && tools.is_array() && !tools.empty() ? *tool_use_ : default_;
  TEMPER_ASSIGN_OR_RETURN(const ChatRenderer chat,
                          ChatRenderer::Make(chosen, special_tokens_, messages, tools, options));
  return DeriveSpans(chat, eos_token());
}

}  // namespace temper

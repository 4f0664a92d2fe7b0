// TextModel of temper.h: a decoding model with its log.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "api/door.h"
#include "api/settings.h"
#include "api/temper.h"
#include "base/log.h"
#include "config/run_options.h"
#include "run/chat_context.h"
#include "run/decoding.h"
#include "run/machine.h"

namespace temper {

struct TextModel::Impl {
  explicit Impl(Observer* observer) : log(observer) {}

  Status Load(const Settings& settings);
  // Answers the tokens that `encode` gives.
  Result<Answer> Say(const std::function<Result<std::vector<int32_t>>()>& encode, const Settings& sampling,
                     const OnText& on_text);

  ObserverLog log;
  ModelOptions options;
  std::optional<ChatContext> chat;
  std::optional<DecodingModel> model;
};

Status TextModel::Impl::Load(const Settings& settings) {
  JsonObject kwargs;
  int64_t context = 4096;
  std::vector<OptionGroup> groups = options.Groups();
  groups.push_back({"Conversation",
                    {ChatTemplateKwargs(kwargs),
                     {.name = "context",
                      .target = &context,
                      .help = "tokens of prompt and answer to make room for",
                      .range = {.at_least = 2}}}});
  TEMPER_RETURN_IF_ERROR(ReadSettings(settings, std::move(groups)));
  if (options.choice.model.empty()) return InvalidArgument("settings: model is required");
  TEMPER_ASSIGN_OR_RETURN(chat, ChatContext::Create(Today(), kwargs));
  TEMPER_ASSIGN_OR_RETURN(model, OpenForDecoding(options));
  if (SamplingOptions of_model; of_model.TakeFrom(model->generation)) LogInfo(of_model.Describe());
  return StartEngine(*model, options, context);
}

Result<Answer> TextModel::Impl::Say(const std::function<Result<std::vector<int32_t>>()>& encode,
                                    const Settings& sampling, const OnText& on_text) {
  SamplingOptions options;
  TEMPER_RETURN_IF_ERROR(ReadSettings(sampling, {options.Group()}));
  options.TakeFrom(model->generation);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encode());
  TEMPER_RETURN_IF_ERROR(CheckPrompt(*model, ids));
  const int64_t room = model->engine->context();
  if (static_cast<int64_t>(ids.size()) >= room) {
    return InvalidArgument(fmt::format(
        "the prompt has {} tokens, too many for the context of {}: shorten it, or open the model with a larger context",
        ids.size(), room));
  }
  bool stopped = false;
  TEMPER_ASSIGN_OR_RETURN(Answer answer, StreamAnswer(
                                             *model, ids, options,
                                             [&](const std::string& text) {
                                               if (on_text && !stopped) stopped = !on_text(text);
                                             },
                                             [&] { return stopped; }));
  if (!answer.cut_off.empty()) LogWarning(answer.cut_off);
  return answer;
}

TextModel::TextModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextModel::TextModel(TextModel&&) noexcept = default;
TextModel& TextModel::operator=(TextModel&&) noexcept = default;
TextModel::~TextModel() = default;

Result<TextModel> Open(const Settings& settings, Observer* observer) {
  auto impl = std::make_unique<TextModel::Impl>(observer);
  TEMPER_RETURN_IF_ERROR(ThroughDoor(impl->log, [&] { return impl->Load(settings); }));
  return TextModel(std::move(impl));
}

Result<std::string> TextModel::Generate(const std::string& prompt, const Settings& sampling, const OnText& on_text) {
  return ThroughDoor(impl_->log, [&]() -> Result<std::string> {
    const auto encode = [&] { return Result(impl_->model->tokenizer->Encode(prompt)); };
    TEMPER_ASSIGN_OR_RETURN(const Answer answer, impl_->Say(encode, sampling, on_text));
    return impl_->model->tokenizer->Decode(answer.tokens);
  });
}

Result<std::string> TextModel::Chat(std::span<const Message> messages, const Settings& sampling,
                                    const OnText& on_text) {
  return ThroughDoor(impl_->log, [&]() -> Result<std::string> {
    const DecodingModel& model = *impl_->model;
    if (!model.chat_template) {
      return InvalidArgument(fmt::format("{} has no chat template: open it with chat_template ({}, or a file)",
                                         model.opened.folder(), KnownTemplateNames()));
    }
    OrderedJson all = OrderedJson::array();
    for (const Message& message : messages) all.push_back({{"role", message.role}, {"content", message.content}});
    const auto encode = [&] { return EncodeChat(model, all, impl_->chat->options()); };
    TEMPER_ASSIGN_OR_RETURN(const Answer answer, impl_->Say(encode, sampling, on_text));
    return TurnOf(model, answer);
  });
}

int64_t TextModel::context() const {
  return impl_->model->engine->context();
}

}  // namespace temper

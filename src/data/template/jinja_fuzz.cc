// libFuzzer target: any bytes as a template, and as the text of the conversation that it renders.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto chat = temper::ChatTemplate::FromSource(input, "fuzz", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat.ok()) return 0;
  const temper::OrderedJson messages = {
      {{"role", "system"}, {"content", "s"}},
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "\u00e9"}}}}},
      {{"role", "assistant"}, {"content", "a\nb"}, {"n", 1.5}, {"k", {1, nullptr, true}}},
  };
  temper::ChatOptions options;
  options.limits = {.steps = 20000, .text = temper::KiB(256), .work = temper::MiB(4)};
  const auto spans = chat->RenderWithSpans(messages, nullptr, options);
  if (!spans.ok()) return 0;
  for (const auto& rendered : *spans) {
    size_t end = 0;
    for (const auto& span : rendered.assistant) {
      if (span.begin < end || span.end <= span.begin || span.end > rendered.text.size()) __builtin_trap();
      end = span.end;
    }
    if (rendered.assistant.empty()) __builtin_trap();
  }
  return 0;
}

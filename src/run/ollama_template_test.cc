#include "run/ollama_template.h"

#include <gtest/gtest.h>

#include "data/template/known_templates.h"

namespace temper::ollama_template_test {
namespace {

std::optional<std::string> Translated(const std::string& source) {
  auto made = ChatTemplate::FromSource(source, "a template", {{"bos_token", "<s>"}});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return OllamaTemplate(*made);
}

TEST(OllamaTemplate, TextsAroundMessagesAreTranslated) {
  const auto text = Translated(
      "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}");
  ASSERT_TRUE(text);
  EXPECT_EQ(
      *text,
      "{{ range .Messages }}{{ if eq .Role \"system\" }}<|system|>\n{{ .Content }}<|end|>\n"
      "{{ else if eq .Role \"user\" }}<|user|>\n{{ .Content }}<|end|>\n"
      "{{ else if eq .Role \"assistant\" }}<|assistant|>\n{{ .Content }}<|end|>\n{{ end }}{{ end }}<|assistant|>\n");
}

TEST(OllamaTemplate, ASystemMessageOfTheTemplatesOwnIsPrintedWhereThereIsNone) {
  const auto text = Translated(
      "{% if messages[0].role != 'system' %}<system>Be kind.</end>{% endif %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->starts_with(
      "{{ if ne (index .Messages 0).Role \"system\" }}<system>Be kind.</end>{{ end }}{{ range .Messages }}"))
      << *text;
}

TEST(OllamaTemplate, WhatDoesMoreIsNotTranslated) {
  EXPECT_FALSE(Translated("{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"));
  EXPECT_FALSE(Translated("{% for m in messages %}{{ loop.index }} {{ m.content }}\n{% endfor %}"));
  EXPECT_FALSE(Translated("{{ messages[-1].content }}"));
}

}  // namespace
}  // namespace temper::ollama_template_test

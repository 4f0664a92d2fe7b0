#include "run/ollama_template.h"

#include <gtest/gtest.h>

#include "data/template/known_templates.h"

namespace temper::ollama_template_test {
namespace {

std::optional<std::string> Translated(const std::string& source, bool adds_bos = true) {
  auto made = ChatTemplate::FromSource(source, "a template", {{"bos_token", "<s>"}});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return OllamaTemplate(*made, adds_bos);
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

TEST(OllamaTemplate, ReasoningSwitchesTrimsAndDatesAreNotTranslated) {
  const auto of = [](const std::string& content, const std::string& front = "") {
    return Translated(front + "{% for m in messages %}[{{ m.role }}] " + content +
                      "\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}");
  };
  EXPECT_TRUE(of("{{ m.content }}"));
  EXPECT_FALSE(of("{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}"));
  EXPECT_FALSE(of("{{ m.content.replace('/no_think', '') }}"));
  EXPECT_FALSE(of("{{ m.content | trim if m.role == 'assistant' else m.content }}"));
  EXPECT_FALSE(of("{{ m.content }}", "It is {{ strftime_now('%d %B %Y') }}.\n"));
}

TEST(OllamaTemplate, ABosThatTheTokenizerDoesNotAddStays) {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant] {% endif %}";
  EXPECT_EQ(Translated(source)->find("<s>"), std::string::npos);
  EXPECT_NE(Translated(source, /*adds_bos=*/false)->find("<s>"), std::string::npos);
}

}  // namespace
}  // namespace temper::ollama_template_test

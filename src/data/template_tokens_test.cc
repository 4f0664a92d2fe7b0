#include "data/template_tokens.h"

#include <gtest/gtest.h>

#include "data/fake_tokenizer.h"

namespace temper::template_tokens_test {
namespace {

ChatTemplate Known(const std::string& name) {
  auto source = FindTemplate(PosixEnv(), name);
  TEMPER_CHECK(source.ok()) << source.status().message();
  auto chat = ChatTemplate::FromSource(source->text, source->where, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  TEMPER_CHECK(chat.ok()) << chat.status().message();
  return *std::move(chat);
}

TEST(TemplateTokens, TheEndOfATurnIsItsFirstSpecialToken) {
  const FakeTokenizer tokenizer;
  EXPECT_EQ(TurnEndToken(Known("chatml"), tokenizer), FakeTokenizer::kImEnd);
  for (const char* name : {"alpaca", "zephyr", "mistral", "llama2"}) {
    EXPECT_EQ(TurnEndToken(Known(name), tokenizer), FakeTokenizer::kEos) << name;
  }
  for (const char* name : {"llama3", "gemma", "phi3"}) {
    EXPECT_EQ(TurnEndToken(Known(name), tokenizer), std::nullopt) << name;
  }
}

TEST(TemplateTokens, MarkersThatTheTokenizerSplitsAreFound) {
  const FakeTokenizer tokenizer;
  EXPECT_EQ(MarkersWithoutToken(Known("chatml"), tokenizer), std::vector<std::string>());
  EXPECT_EQ(MarkersWithoutToken(Known("alpaca"), tokenizer), std::vector<std::string>());
  EXPECT_EQ(MarkersWithoutToken(Known("phi4"), tokenizer), std::vector<std::string>{"<|im_sep|>"});
  EXPECT_EQ(MarkersWithoutToken(Known("gemma"), tokenizer),
            (std::vector<std::string>{"<start_of_turn>", "<end_of_turn>"}));
}

TEST(KnownTemplates, ANameIsFoundAndAnUnknownOneIsAnswered) {
  for (const KnownTemplate& known : KnownTemplates()) Known(std::string(known.name));
  const auto wrong = FindTemplate(PosixEnv(), "chatmel");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("did you mean 'chatml'"), std::string::npos) << wrong.status().message();
  const auto unknown = FindTemplate(PosixEnv(), "no/such.jinja");
  EXPECT_NE(unknown.status().message().find("no/such.jinja: there is no such file"), std::string::npos);
  EXPECT_NE(unknown.status().message().find("alpaca, chatml, gemma"), std::string::npos);
}

}  // namespace
}  // namespace temper::template_tokens_test

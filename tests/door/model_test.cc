// Plan, Evaluate and Open of temper.h give what the program prints.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "api/temper.h"
#include "tests/command_line/temper_program.h"

namespace temper::model_test {
namespace {

using program::kModel;

class DoorToModels : public program::Workplace {
 protected:
  std::string Printed(const program::Arguments& arguments) const {
    const auto ended = Temper(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }
};

TEST_F(DoorToModels, AnswersWhatTheProgramAnswers) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  auto model = Open(Settings().Set("model", kModel).Set("threads", 1).Set("context", 128));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->context(), 128);
  const std::string prompt = "Why does it rain?";
  std::string streamed;
  const auto text = model->Generate(prompt, Settings().Set("max_new_tokens", 16), [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(streamed, *text);
  const Settings sampled = Settings().Set("max_new_tokens", 12).Set("temperature", 0.8).Set("seed", 3);
  const std::vector<Message> messages = {{"user", prompt}};
  const auto reply = model->Chat(messages, sampled);
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  int pieces = 0;
  const auto ended = model->Generate(prompt, {}, [&](std::string_view) { return ++pieces < 2; });
  ASSERT_TRUE(ended.ok()) << ended.status().message();
  EXPECT_EQ(pieces, 2);
  EXPECT_TRUE(text->starts_with(*ended)) << *ended;
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");

  const program::Arguments line = {"generate", kModel, "--prompt", prompt, "--threads", "1"};
  EXPECT_EQ(*text + "\n", Printed(program::With(line, {"--max_new_tokens", "16"})));
  EXPECT_EQ(*reply + "\n",
            Printed(program::With(line, {"--max_new_tokens", "12", "--temperature", "0.8", "--seed", "3", "--chat"})));
}

TEST_F(DoorToModels, ModelsInTwoThreadsAnswerAsEachAlone) {
  const auto answer = [](const std::string& prompt) {
    auto model = Open(Settings().Set("model", kModel).Set("threads", 2).Set("context", 64));
    TEMPER_CHECK(model.ok()) << model.status().message();
    return *model->Generate(prompt, Settings().Set("max_new_tokens", 20));
  };
  const std::string one = answer("Why does it rain?"), two = answer("What is a volcano?");
  EXPECT_NE(one, two);
  std::string beside;
  std::thread other([&] { beside = answer("What is a volcano?"); });
  EXPECT_EQ(answer("Why does it rain?"), one);
  other.join();
  EXPECT_EQ(beside, two);
}

TEST_F(DoorToModels, APromptThatDoesNotFitSaysSo) {
  auto model = Open(Settings().Set("model", kModel).Set("threads", 1).Set("context", 8));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto text = model->Generate("Why does it rain, and why does it stop, and who asks?");
  EXPECT_NE(text.status().message().find("too many for the context of 8"), std::string::npos)
      << text.status().message();
  EXPECT_EQ(model->Generate("Hi", Settings().Set("temprature", 1)).status().message(),
            "settings: there is no setting 'temprature'; did you mean 'temperature'?");
}

TEST_F(DoorToModels, EvaluatesToWhatTheProgramPrints) {
  const auto result =
      Evaluate(Settings().Set("model", kModel).Set("data", Path("e.jsonl")).Set("threads", 1).Set("max_seq_len", 96));
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Json printed =
      Json::parse(Printed({"eval", kModel, "--data", "e.jsonl", "--threads", "1", "--max_seq_len", "96"}));
  EXPECT_EQ(result->loss, printed["eval_loss"].get<double>());
  EXPECT_EQ(result->tokens, printed["tokens"].get<int64_t>());
  EXPECT_EQ(result->samples, printed["samples"].get<int64_t>());
}

TEST_F(DoorToModels, PlansWhatTheProgramPrints) {
  Settings run;
  run.Set("model", kModel).Set("max_seq_len", 96).Set("threads", 1).Set("max_steps", 10).Set("rates", "typical");
  run.Set("cluster", "1xH200");
  const auto plan = Plan(run);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->fits, true);
  EXPECT_EQ(plan->steps, 10);
  const program::Arguments line = {"plan",        "--model", kModel,    "--max_seq_len", "96",        "--threads", "1",
                                   "--max_steps", "10",      "--rates", "typical",       "--cluster", "1xH200"};
  EXPECT_EQ(plan->text, Printed(line));
  EXPECT_EQ(plan->json, Printed(program::With(line, {"--json"})));
  const Json facts = Json::parse(plan->json);
  EXPECT_EQ(plan->parameters, facts["parameters"].get<int64_t>());
  EXPECT_GT(plan->tokens_per_second.value_or(0), 0);
  EXPECT_NEAR(*plan->seconds_per_step * *plan->tokens_per_second, static_cast<double>(plan->tokens_per_step), 1e-6);

  const auto search = Plan(Settings(run).Set("search", "throughput"));
  ASSERT_TRUE(search.ok()) << search.status().message();
  EXPECT_EQ(search->fits, std::nullopt) << "its text has many plans";

  const auto small = Plan(run.Set("memory.device", "2MiB").Set("memory.host", "1MiB"));
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_EQ(small->fits, false);
  EXPECT_NE(small->why_not.find("of a device's 2.00 MiB"), std::string::npos) << small->why_not;
}

}  // namespace
}  // namespace temper::model_test

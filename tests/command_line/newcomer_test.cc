// Mistakes that newcomers made, and what they are told: each line names the remedy.
#include "temper_program.h"

namespace temper::program::newcomer_test {
namespace {

using Newcomer = Workplace;

TEST_F(Newcomer, ATableWithColumnsOfOtherNamesIsToldHowToNameThem) {
  Spill("d.csv", "frage,antwort\nWarum?,Darum.\n");
  const Ended ended = Temper(Train({"--data", "d.csv"}));
  ExpectEnd(ended, 1, {"The row has 'frage', 'antwort'", "--columns prompt=QUESTION,completion=ANSWER"});
  const Ended named =
      Temper({"data", "preview", kModel, "--data", "d.csv", "--columns", "prompt=frage,completion=antwort"});
  EXPECT_EQ(named.code, 0) << named.err;
}

TEST_F(Newcomer, ValuesThatAreNotJoinedByACommaAreNoFile) {
  ExpectEnd(Temper({"train", "--columns", "prompt=question", "completion=answer"}), 2,
            {"'completion=answer' belongs to no option", "joined by commas"});
}

TEST_F(Newcomer, AFileOfRowsIsNoRecipe) {
  ExpectEnd(Temper({"import", "d.jsonl"}), 2,
            {"d.jsonl is a file of rows: import takes the recipe that names them", "temper data preview MODEL"});
}

TEST_F(Newcomer, ACheckpointThatIsNotThereIsAnsweredWithThoseThatAre) {
  ExpectEnd(Temper(Train({"--resume=checkpoint-7"})), 1,
            {"--resume=checkpoint-7: there is no such folder, and out has no checkpoint"});
  ASSERT_EQ(Temper(Train({"--max_steps", "2", "--save_steps", "1"})).code, 0);
  ExpectEnd(Temper(Train({"--max_steps", "2", "--resume=checkpoint-7"})), 1,
            {"there is no such folder, and out has checkpoint-1, checkpoint-2"});
}

TEST_F(Newcomer, NumbersThatAreNotFiniteAreBlamedOnTheLearningRateWhereTheLossRoseBefore) {
  const Ended ended = Temper(Train({"--learning_rate", "10", "--max_steps", "60", "--max_grad_norm", "0"}));
  ExpectEnd(ended, 1,
            {"is not a finite number", "The loss had risen before, from ", "learning_rate (now 10) is too high"});
}

TEST_F(Newcomer, RowsFarLongerThanAllOfTheDataAreWarnedOf) {
  const auto run = [&](const char* length) {
    return Temper(Train({"--max_steps", "1", "--max_seq_len", length, "--overwrite"}));
  };
  Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 2));
  ExpectEnd(run("512"), 0, {"of one row of 512 tokens: a lower max_seq_len takes less memory and time"});
  const Ended filled = run("96");
  EXPECT_EQ(filled.err.find("a lower max_seq_len"), std::string::npos) << filled.err;
}

TEST_F(Newcomer, ConversationsThatBecomeSeveralSamplesAreSaidWithTheirCostAndTheWayOut) {
  Spill("think.jinja",
        "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.reasoning_content and loop.last %}"
        "{{ '(' + m.reasoning_content + ')' }}{% endif %}{{ m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}");
  Spill("think.jsonl", R"({"messages": [{"role": "user", "content": "q1"},
                           {"role": "assistant", "reasoning_content": "t1", "content": "a1"}, {"role": "user", "content": "q2"},
                           {"role": "assistant", "reasoning_content": "t2", "content": "a2"}]})");
  std::string row = Slurp("think.jsonl");
  std::erase(row, '\n');
  Spill("think.jsonl", row + "\n");
  const auto preview = [&](const char* turns) {
    return Temper({"data", "preview", kModel, "--data", "think.jsonl", "--chat_template", "think.jinja",
                   "--reasoning_turns", turns});
  };
  const Ended all = preview("all"), last = preview("last");
  ExpectEnd(all, 0,
            {"1 conversation becomes 2 samples, 1.6 times the tokens (19 tokens more)",
             "--reasoning_turns last makes one sample of each"});
  ExpectEnd(last, 0, {"1 sample, 34 tokens", "reasoning of 1 turn"});
  EXPECT_EQ(last.err.find("becomes"), std::string::npos) << last.err;
}

// next: lines name the base's type; who types the command without it is told.
TEST_F(Newcomer, AnAdapterOnAnotherBaseThanItsOwnIsSaid) {
  ASSERT_EQ(Temper(Train({"--max_steps", "1", "--base_dtype", "nf4"})).code, 0);
  const auto eval = [&](const Arguments& more) {
    return Temper(With({"eval", "out", "--data", "e.jsonl", "--threads", "1"}, more));
  };
  ExpectEnd(eval({}), 0, {"base        not quantised; out was trained on a base in nf4: --base_dtype nf4 has it so"});
  ExpectEnd(eval({"--base_dtype", "int8"}), 0, {"base        in int8; out was trained on a base in nf4"});
  const Ended same = eval({"--base_dtype", "nf4"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err.find("was trained on a base"), std::string::npos) << same.err;
}

}  // namespace
}  // namespace temper::program::newcomer_test

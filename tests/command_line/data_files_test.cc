// Several data files in a run: `temper train` on them is exact on resume, on ranks, and about what it refuses.
#include "temper_program.h"

namespace temper::program {
namespace {

class DataFiles : public Workplace {
 protected:
  // Three epochs over two files of which one gives a part of its samples to each.
  Arguments Run(const Arguments& more = {}) const {
    Arguments run = With(Train({"--num_train_epochs", "3", "--save_steps", "20", "--learning_rate", "1e-3"}), more);
    for (const char* option : {"--max_steps", "--data"}) {
      const auto at = std::find(run.begin(), run.end(), option);
      if (at != run.end()) run.erase(at, at + 2);
    }
    run.insert(run.end(), {"--data", "d.jsonl:max_samples=20", "--data", "e.jsonl:passes=2.5"});
    return run;
  }
};

TEST_F(DataFiles, ARunOnTwoFilesStoppedAndResumedEndsWithTheSameBytes) {
  const Ended whole = Temper(Run());
  ExpectEnd(whole, 0,
            {"d.jsonl: 20 rows of messages (detected at line 1); 1 pass an epoch",
             "e.jsonl: 6 rows of messages (detected at line 1); 2.5 passes an epoch"});
  ASSERT_TRUE(PosixEnv().Rename(Path("out"), Path("whole")).ok());
  Process first(Command(Run()), folder());
  ASSERT_TRUE(first.ReadErrUntil("step 43/"));  // in the second epoch
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().code, 75);
  ExpectEnd(Temper(With(Run(), {"--resume"})), 0, {"resume      from out/checkpoint-"});
  ExpectSame(Path("whole"), Path("out"));

  // Other use of the same files is other data.
  Arguments other = With(Run(), {"--resume"});
  other.back() = "--resume=checkpoint-20";
  other[static_cast<size_t>(std::find(other.begin(), other.end(), "e.jsonl:passes=2.5") - other.begin())] = "e.jsonl";
  ExpectEnd(Temper(other), 2,
            {"trained with other settings: data [{path: d.jsonl, max_samples: 20}, {path: e.jsonl, "
             "passes: 2.5}] (now [{path: d.jsonl, max_samples: 20}, e.jsonl])"});
}

// The first rank reads the files; the others learn where each begins.
TEST_F(DataFiles, TwoRanksSeeTheSameSamplesAsOne) {
  const Arguments one = Run({"--gradient_accumulation_steps", "2", "--output_dir", "one"});
  const Arguments two = Run({"--nprocs", "2", "--mesh", "dp=2", "--output_dir", "two"});
  ASSERT_EQ(Temper(one).code, 0);
  ASSERT_EQ(Temper(two).code, 0);
  const auto expected = Losses(Path("one")), got = Losses(Path("two"));
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, loss] : expected) EXPECT_NEAR(got.at(step), loss, 0.02 * loss) << step;
}

TEST_F(DataFiles, EvaluationAndPreviewTakeSeveralFiles) {
  const auto samples = [](const Ended& ended) { return Json::parse(ended.out)["samples"].get<int64_t>(); };
  const Ended evaluated = Temper({"eval", kModel, "--data", "d.jsonl:max_samples=7", "--data", "e.jsonl"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(samples(evaluated), 13);
  const Ended shown = Temper({"data", "preview", kModel, "--json", "--data", "e.jsonl", "--data", "d.jsonl"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("{\"place\":\"e.jsonl line 6\""), std::string::npos);
  EXPECT_NE(shown.out.find("{\"place\":\"d.jsonl line 60\""), std::string::npos);
}

TEST_F(DataFiles, MistakesNameTheFileAndTheRemedy) {
  Spill("bad.jsonl", "{\"text\": \"good\"}\n{\"text\": 5}\n");
  Spill("story.txt", "Once.");
  const auto train = [&](const Arguments& data) { return Temper(With(Train({}), data)); };
  ExpectEnd(train({"--data", "d.jsonl", "--eval_data", "bad.jsonl"}), 1, {"bad.jsonl line 2: 'text' should be text"});
  ExpectEnd(train({"--data", "d.jsonl,e.jsonl"}), 1, {"for several files repeat --data"});
  ExpectEnd(train({"--data", "story.txt:max_samples=2"}), 2, {"--data story.txt: max_samples counts rows"});
  Arguments missing = Train({});
  missing.insert(missing.end(), {"--data", "missing.jsonl"});
  ExpectEnd(Temper(missing), 1, {"--data: cannot open missing.jsonl"});
}

}  // namespace
}  // namespace temper::program

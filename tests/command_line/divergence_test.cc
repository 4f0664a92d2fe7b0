// Runs whose learning rate is much too high: what they say, and how they end.
#include "temper_program.h"

namespace temper::program::divergence_test {
namespace {

class Divergence : public Workplace {
 protected:
  // Diverges in the first steps of the warmup, but not before the third.
  static Arguments Run(const Arguments& more) {
    return With(Train({"--method", "full", "--learning_rate", "0.5", "--lr_scheduler_type", "constant_with_warmup",
                       "--warmup_steps", "20", "--max_steps", "30", "--save_steps", "0"}),
                more);
  }
};

TEST_F(Divergence, IsWarnedOfAtItsStepAtTheEndAndInTheCard) {
  const Ended ended = Temper(Run({}));
  ExpectEnd(
      ended, 0,
      {"the run diverges: its loss began at", "Lower learning_rate (now 0.5)",
       "warning: the run diverged: its loss began at", "No checkpoint is from before: start again with --overwrite"});
  EXPECT_EQ(ended.err.find("the run diverges"), ended.err.rfind("the run diverges")) << "it is said twice";
  EXPECT_EQ(ended.err.find("next:"), std::string::npos) << "it offers a ruined model for use:\n" << ended.err;
  EXPECT_NE(Slurp("out/README.md").find("the run diverged:** its loss began at"), std::string::npos);
}

TEST_F(Divergence, OfAResultFromBeforeIsNoneOfTheResult) {
  const Ended ended = Temper(Run({"--eval_data", "e.jsonl", "--load_best_model_at_end", "true", "--save_steps", "1",
                                  "--eval_steps", "1", "--save_total_limit", "1", "--max_steps", "25"}));
  ExpectEnd(ended, 0, {"the run diverged", "next:"});
  EXPECT_EQ(Slurp("out/README.md").find("diverged"), std::string::npos);
}

TEST_F(Divergence, EndsARunThatWantsItAndALowerRateGoesOnFromTheCheckpointThatItNames) {
  const Ended ended = Temper(Run({"--stop_on_divergence", "true", "--save_steps", "1"}));
  ExpectEnd(ended, 3, {"error: step ", "stop_on_divergence ends it", "The last good checkpoint is out/checkpoint-"});
  EXPECT_FALSE(Has("out/adapter_config.json") || Has("out/model.safetensors"));
  const size_t at = ended.err.find("--resume=");
  ASSERT_NE(at, std::string::npos);
  const std::string named = ended.err.substr(at, ended.err.find(' ', at) - at);
  ASSERT_TRUE(Has("out/" + named.substr(named.find('=') + 1))) << named;
  ExpectEnd(Temper(Run({"--stop_on_divergence", "true", named, "--learning_rate", "1e-4", "--save_steps", "0"})), 0,
            {"done        30 steps", "next:"});
}

// Stopped within the losses above the start: the count goes on, so the run ends at the same step.
TEST_F(Divergence, IsCountedOnByAResume) {
  const Arguments run = Run({"--stop_on_divergence", "true"});
  const Ended whole = Temper(run);
  ASSERT_EQ(whole.code, 3) << whole.err;
  Process first(Command(With(run, {"--output_dir", "stopped"})), folder());
  ASSERT_TRUE(first.ReadErrUntil("step 12/30"));
  first.Signal(SIGTERM);
  const Ended stopped = first.Wait();
  ASSERT_EQ(stopped.code, 75) << stopped.err;
  const Ended resumed = Temper(With(run, {"--output_dir", "stopped", "--resume"}));
  EXPECT_EQ(resumed.code, 3) << resumed.err;
  const auto told = [](const Ended& ended) {
    const size_t at = ended.err.find("error: step ");
    return ended.err.substr(at, ended.err.find("stop_on_divergence ends", at) - at);
  };
  EXPECT_EQ(told(resumed), told(whole));
}

TEST_F(Divergence, EndsAllRanks) {
  ExpectEnd(Temper(Run({"--stop_on_divergence", "true", "--nprocs", "2"})), 3, {"stop_on_divergence ends it"});
}

}  // namespace
}  // namespace temper::program::divergence_test

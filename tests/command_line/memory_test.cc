// The memory of a whole run, from reading data to the last save, is what `temper plan` says of it.
#include "temper_program.h"

namespace temper::program {
namespace {

#ifdef TEMPER_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// What a process takes beside its arena: its code and libraries, the tokenizer, the data, buffers of the checkpoint's
// writer.
constexpr Bytes kBeside{150 << 20};

class Memory : public Workplace {
 protected:
  // The example's model, grown to some 26 million parameters: weights, gradients and states are four fifths of what
  // such a run takes.
  Memory() : model_(CopyModel("model")) {
    Json config = Json::parse(temper::Slurp(model_ + "/config.json"));
    config["hidden_size"] = 512;
    config["intermediate_size"] = 1408;
    config["num_hidden_layers"] = 8;
    config["num_attention_heads"] = 8;
    config["num_key_value_heads"] = 4;
    config["head_dim"] = 64;
    temper::Spill(model_ + "/config.json", config.dump());
  }

  // `options` name the model and what the step is made of.
  void TakesWhatIsPlanned(Arguments options) {
    const Arguments step = {"--threads", "1", "--max_seq_len", "256", "--gradient_accumulation_steps", "1"};
    options.insert(options.end(), step.begin(), step.end());
    Arguments plan = {"plan", "--json"};
    plan.insert(plan.end(), options.begin(), options.end());
    const Ended planned = Temper(plan);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Bytes bytes{Json::parse(planned.out)["bytes"]["device"]["total"].get<int64_t>()};
    Arguments train = {
        "train",         "--data", "d.jsonl",      "--eval_data", "e.jsonl",      "--max_steps", "3",
        "--save_steps",  "1",      "--eval_steps", "2",           "--output_dir", "out",         "--overwrite",
        "--tensorboard", "false"};
    train.insert(train.end(), options.begin(), options.end());
    const Ended trained = Temper(train);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_LE(trained.peak_rss, bytes + kBeside) << "planned " << ToString(bytes);
    EXPECT_GE(trained.peak_rss, bytes) << "what is planned is touched before the first step";
  }

  const std::string model_;
};

TEST_F(Memory, ARunTakesWhatItsPlanSays) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep books of their own";
  TakesWhatIsPlanned({"--model", model_, "--method", "full", "--from_scratch"});
  const Ended exported = Temper({"export", "--model", "out", "--output_dir", "trained"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  TakesWhatIsPlanned({"--model", "trained", "--method", "lora"});
}

}  // namespace
}  // namespace temper::program

// Training through temper.h, in the process of somebody else.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "api/temper.h"
#include "tests/command_line/temper_program.h"

namespace temper::train_test {
namespace {

using program::BytesOf;
using program::kModel;

// What a run has told, and a look at whether it told one thing at a time.
class Recorder : public Observer {
 public:
  void OnLine(Level, std::string_view line) override {
    const Alone alone(*this);
    lines.emplace_back(line);
  }
  void OnStep(const StepMetrics& step) override {
    const Alone alone(*this);
    losses[step.step] = step.loss;
    if (on_step) on_step(step);
  }
  void OnEvaluation(const EvaluationMetrics& evaluation) override {
    const Alone alone(*this);
    evaluations[evaluation.step] = evaluation.loss;
  }
  void OnCheckpoint(const std::string& folder, int64_t step) override {
    const Alone alone(*this);
    checkpoints[step] = folder;
  }

  bool Says(const std::string& text) const {
    return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.find(text) != line.npos; });
  }

  std::vector<std::string> lines;
  std::map<int64_t, double> losses, evaluations;
  std::map<int64_t, std::string> checkpoints;
  std::function<void(const StepMetrics&)> on_step;
  bool overlapped = false;

 private:
  struct Alone {
    explicit Alone(Recorder& of) : recorder(of) { recorder.overlapped |= recorder.busy_.exchange(true); }
    ~Alone() { recorder.busy_ = false; }
    Recorder& recorder;
  };
  std::atomic<bool> busy_ = false;
};

class Door : public program::Workplace {
 protected:
  Settings Run(const std::string& out) const {
    Settings run;
    run.Set("model", kModel).Set("data", Path("d.jsonl")).Set("output_dir", Path(out));
    run.Set("max_seq_len", 96).Set("gradient_accumulation_steps", 1).Set("warmup_steps", 0).Set("threads", 1);
    run.Set("tensorboard", false).Set("rates", "typical");
    return run;
  }
};

using Files = std::map<std::string, std::string>;

// Names and bytes; not the tokens' files, whose keys have the checksum of the program that wrote them.
void ExpectSame(Files expected, Files got) {
  for (Files* files : {&expected, &got}) {
    std::erase_if(*files, [](const auto& file) { return file.first.starts_with("tokens-"); });
  }
  EXPECT_GT(expected.size(), 8u);
  EXPECT_EQ(got.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    EXPECT_TRUE(got.contains(name) && got.at(name) == bytes) << name << " differs";
  }
}

struct OneRun {
  Result<TrainResult> result = Status(StatusCode::kInterrupted, "not run");
  Recorder recorder;
  Files files;
};

// The runs differ in what they train, how they multiply, and when they save. Where both train at once, the first step
// of each waits for the other's, so that neither is over before the other begins.
TEST_F(Door, TwoRunsInOneProcessGiveBitForBitWhatEachGivesAlone) {
  const auto train = [&](bool first, std::barrier<>* meet) {
    auto one = std::make_unique<OneRun>();
    std::stop_source stop;
    one->recorder.on_step = [&, first](const StepMetrics& step) {
      if (step.step == 1 && meet != nullptr) meet->arrive_and_wait();
      if (step.step == 4 && !first) stop.request_stop();
    };
    Settings run = Run(first ? "lora" : "full");
    if (first) {
      run.Set("eval_data", Path("e.jsonl")).Set("max_steps", 6).Set("save_steps", 3).Set("threads", 2);
    } else {
      run.Set("method", "full").Set("max_steps", 9).Set("learning_rate", 1e-3).Set("seed", 7).Set("dtype", "f32");
    }
    one->result = Train(run, &one->recorder, stop.get_token());
    one->files = BytesOf(Path(first ? "lora" : "full"));
    TEMPER_CHECK(PosixEnv().RemoveTree(Path(first ? "lora" : "full")).ok());
    return one;
  };
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto lora_alone = train(true, nullptr), full_alone = train(false, nullptr);
  std::barrier<> meet(2);
  std::unique_ptr<OneRun> lora, full;
  std::thread other([&] { full = train(false, &meet); });
  lora = train(true, &meet);
  other.join();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");

  ASSERT_TRUE(lora->result.ok()) << lora->result.status().message();
  ASSERT_TRUE(full->result.ok()) << full->result.status().message();
  EXPECT_EQ(lora->result->end, TrainResult::End::kDone);
  EXPECT_EQ(lora->result->step, 6);
  EXPECT_EQ(full->result->end, TrainResult::End::kStopped);
  EXPECT_EQ(full->result->step, 4);
  EXPECT_EQ(full->result->total_steps, 9);
  for (const auto& [together, alone] : {std::pair{&lora, &lora_alone}, std::pair{&full, &full_alone}}) {
    EXPECT_EQ((*together)->recorder.losses, (*alone)->recorder.losses);
    EXPECT_EQ((*together)->recorder.evaluations, (*alone)->recorder.evaluations);
    EXPECT_EQ((*together)->recorder.checkpoints, (*alone)->recorder.checkpoints);
    EXPECT_FALSE((*together)->recorder.overlapped);
    ExpectSame((*alone)->files, (*together)->files);
  }
  EXPECT_EQ(lora->recorder.losses.size(), 6u);
  EXPECT_EQ(full->recorder.losses.size(), 4u);
  EXPECT_EQ(lora->recorder.checkpoints.size(), 2u);
  EXPECT_EQ(lora->recorder.evaluations.size(), 2u);
  EXPECT_TRUE(lora->recorder.Says("done        6 steps") && !lora->recorder.Says(Path("full")));
  EXPECT_TRUE(full->recorder.Says("stopped at step 4 of 9") && !full->recorder.Says(Path("lora")));
}

TEST_F(Door, WritesWhatTheProgramWrites) {
  const auto of_program = Temper(program::Train(
      {"--data", Path("d.jsonl"), "--output_dir", Path("out"), "--eval_fraction", "0.2", "--lora.r", "4"}));
  ASSERT_EQ(of_program.code, 0) << of_program.err;
  const auto expected = BytesOf(Path("out"));
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
  Recorder recorder;
  const auto result = Train(Run("out").Set("max_steps", 4).Set("eval_fraction", 0.2).Set("lora", "{r: 4}"), &recorder);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ExpectSame(expected, BytesOf(Path("out")));
  EXPECT_EQ(result->eval_loss, recorder.evaluations[4]);
}

TEST_F(Door, AStoppedRunGoesOnToTheSameEnd) {
  ASSERT_TRUE(Train(Run("whole").Set("max_steps", 6)).ok());
  std::stop_source stop;
  Recorder recorder;
  recorder.on_step = [&](const StepMetrics& step) {
    if (step.step == 3) stop.request_stop();
  };
  const auto stopped = Train(Run("parts").Set("max_steps", 6), &recorder, stop.get_token());
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  EXPECT_EQ(stopped->end, TrainResult::End::kStopped);
  const auto resumed = Train(Run("parts").Set("max_steps", 6).Set("resume", true));
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_EQ(resumed->end, TrainResult::End::kDone);
  EXPECT_EQ(Slurp("parts/adapter_model.safetensors"), Slurp("whole/adapter_model.safetensors"));
}

TEST_F(Door, ARunThatIsStoppedBeforeItsFirstStepLeavesNothing) {
  std::stop_source stop;
  stop.request_stop();
  const auto result = Train(Run("out"), nullptr, stop.get_token());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->end, TrainResult::End::kStopped);
  EXPECT_EQ(result->step, 0);
  EXPECT_FALSE(Has("out"));
}

TEST_F(Door, ErrorsNameTheSetting) {
  const auto error = [&](const Settings& settings) {
    const auto result = Train(settings);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    return result.status().message();
  };
  EXPECT_EQ(error(Run("out").Set("lerning_rate", 1e-3)),
            "settings: there is no setting 'lerning_rate'; did you mean 'learning_rate'?");
  EXPECT_EQ(error(Run("out").Set("max_steps", "many")), "settings: max_steps should be a whole number, but is 'many'");
  EXPECT_EQ(error(Run("out").Add("model", kModel)), "settings: model takes one value: set it, instead of adding to it");
  EXPECT_EQ(error(Settings::Yaml("model: a\nlora:\n  rank: 3\n", "run.yaml")).substr(0, 15), "run.yaml line 3");
  EXPECT_EQ(Train(Run("out").Set("nprocs", 2)).status().code(), StatusCode::kUnsupported);
  EXPECT_FALSE(Has("out"));
}

}  // namespace
}  // namespace temper::train_test

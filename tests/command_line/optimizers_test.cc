// Optimizers beside AdamW and SGD, in whole runs: the steps of bitsandbytes and torch, memory, what is refused.
#include <cmath>

#include "file_tensors.h"

namespace temper::program::optimizers_test {
namespace {

class Optimizers : public Workplace {
 protected:
  Arguments Steps(const Arguments& more) const {
    return With(Train({"--dtype", "f32", "--lr_scheduler_type", "constant", "--overwrite"}), more);
  }

  // An adapter as make_optimizer_goldens.py begins with it: waves.
  void WriteAdapter(const std::string& folder) const {
    TEMPER_CHECK(PosixEnv().CreateFolders(folder).ok());
    Json config = Json::parse(temper::Slurp(kGoldens + "/adapters/preference/adapter_config.json"));
    config["base_model_name_or_path"] = kModel;
    config["r"] = config["lora_alpha"] = 32;
    config["target_modules"] = {"q_proj", "k_proj", "down_proj"};
    temper::Spill(folder + "/adapter_config.json", config.dump());
    Tensors tensors;
    int64_t seed = 0;
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
      std::vector<std::byte> bytes(static_cast<size_t>(4 * rows * columns));
      for (int64_t i = 0; i < rows * columns; ++i) {
        const float x = static_cast<float>((i * 37 + seed * 101) % 127 - 63) / 1024;
        std::memcpy(bytes.data() + 4 * i, &x, 4);
      }
      tensors["base_model.model.model.layers." + name + ".weight"] = {{DType::kF32, {rows, columns}}, std::move(bytes)};
      ++seed;
    };
    for (int layer = 0; layer < 5; ++layer) {
      for (const auto& [module, in, out] :
           {std::tuple{"self_attn.q_proj", 160, 160}, {"self_attn.k_proj", 160, 32}, {"mlp.down_proj", 448, 160}}) {
        const std::string name = fmt::format("{}.{}", layer, module);
        add(name + ".lora_A", 32, in);
        add(name + ".lora_B", out, 32);
      }
    }
    Write(folder + "/adapter_model.safetensors", tensors);
  }
};

// tests/parity/make_optimizer_goldens.py: 20 steps of bitsandbytes' AdamW8bit, of torch's Muon and of transformers'
// Adafactor on all rows at once, in full and of an adapter: losses, norms, and how far every tensor moves; with torch's
// moving average of weights: how far the average does.
TEST_F(Optimizers, StepsAreThoseOfBitsandbytesTorchAndTransformers) {
  const Json golden = Json::parse(temper::Slurp(kGoldens + "/optimizers.json"));
  std::string rows;
  for (const Json& row : golden["rows"]) rows += Json{{"text", row}}.dump() + "\n";
  Spill("golden.jsonl", rows);
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const bool lora = wanted.value("lora", false), in_bf16 = wanted.value("bf16", false);
    Arguments run = Steps({"--data", "golden.jsonl", "--max_seq_len", "512", "--max_steps", "20", "--save_steps", "20",
                           "--optimizer", wanted["optimizer"].get<std::string>(), "--learning_rate",
                           wanted["learning_rate"].dump(), "--weight_decay", wanted["weight_decay"].dump()});
    std::string before = kModel + "/model.safetensors", after = "out/checkpoint-20/model.safetensors";
    if (lora) {
      WriteAdapter(Path("begin"));
      run = With(run, {"--adapter", Path("begin")});
      before = Path("begin/adapter_model.safetensors");
      after = "out/adapter_model.safetensors";
    } else {
      run = With(run, {"--method", "full"});
    }
    if (wanted.value("match_rms_adamw", false)) run = With(run, {"--muon_match_rms_adamw", "true"});
    if (wanted.value("scale_parameter", false)) run = With(run, {"--adafactor_scale_parameter", "true"});
    const bool averages = wanted.contains("ema_decay");
    if (averages) {
      run = With(run, {"--ema_decay", wanted["ema_decay"].dump()});
      if (!lora) after = "out/checkpoint-20/state-00000-of-00001.safetensors";
    }
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Lines(Slurp("out/metrics.jsonl"));
    ASSERT_EQ(steps.size(), wanted["steps"].size());
    // bf16 has 8 bits: torch's iteration in it makes a step whose direction differs by some hundredths.
    const double allowed = in_bf16 ? 2e-2 : 1e-4;
    // A moment beside a border between two codes goes to one here and to the other there, by the rounding of a
    // gradient: single elements then move by some hundredths more or less.
    const bool rounds = wanted["optimizer"] == "adamw_8bit";
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        const double number = value.get<double>();
        const double within = (rounds && report != "loss" ? 10 : 1) * allowed * number;
        EXPECT_NEAR(steps[i][report].get<double>(), number, within) << "step " << i + 1 << " " << report;
      }
    }
    const Tensors old = Read(before), made = Read(Path(after));
    for (const auto& [tensor, change] : wanted["change"].items()) {
      const std::string name = averages && !lora ? "ema:" + tensor : tensor;
      ASSERT_TRUE(made.contains(name)) << name;
      const Change own = ChangeOf(Floats(old.at(tensor)), Floats(made.at(name)));
      const double l2 = change["l2"].get<double>();
      EXPECT_NEAR(own.l2, l2, (rounds ? 50 : 10) * allowed * l2) << tensor;
    }
  }
}

// The bytes that a checkpoint holds and a plan counts: 260 for each 256 elements of a matrix, 4 for each of the table
// and the norms; twice.
TEST_F(Optimizers, StatesOf8BitsTakeTheirBytesInPlanAndCheckpoint) {
  const Ended run =
      Temper(Steps({"--method", "full", "--optimizer", "adamw_8bit", "--max_steps", "2", "--save_steps", "1"}));
  ASSERT_EQ(run.code, 0) << run.err;
  int64_t states = 0, blocks = 0;
  const std::string saved = Path("out/checkpoint-1");
  for (const std::string& file : Must(PosixEnv().List(saved))) {
    if (!file.starts_with("state-")) continue;
    for (const auto& [name, tensor] : Read(saved + "/" + file)) {
      states += static_cast<int64_t>(tensor.second.size());
      if (!name.starts_with("adam8_")) continue;
      EXPECT_EQ(tensor.first.dtype, DType::kU8) << name;
      blocks += static_cast<int64_t>(tensor.second.size());
    }
  }
  // Of each of 5 layers: q and o 160 x 160, k and v 32 x 160, three of 448 x 160; m and v.
  EXPECT_EQ(blocks, 2 * 5 * (2 * 160 * 160 + 2 * 32 * 160 + 3 * 448 * 160) / 256 * 260);
  EXPECT_EQ(states, blocks + 2 * 4 * (2048 * 160 + (2 * 5 + 1) * 160));
  EXPECT_NE(run.err.find(fmt::format("optimizer {}", ToString(Bytes{states}))), std::string::npos) << run.err;
}

// Four bytes for each row and column of a matrix and each element of a norm; with an average four for each element.
TEST_F(Optimizers, AdafactorsStatesAndAnAverageTakeTheirBytesInPlanAndCheckpoint) {
  for (const bool averages : {false, true}) {
    Arguments line = Steps({"--method", "full", "--optimizer", "adafactor", "--max_steps", "2", "--save_steps", "1"});
    if (averages) line = With(line, {"--ema_decay", "0.9"});
    const Ended run = Temper(line);
    ASSERT_EQ(run.code, 0) << run.err;
    int64_t states = 0;
    const std::string saved = Path("out/checkpoint-1");
    for (const auto& [name, tensor] : Read(saved + "/state-00000-of-00001.safetensors")) {
      states += static_cast<int64_t>(tensor.second.size());
    }
    // Of each of 5 layers: q and o 160 x 160, k and v 32 x 160, three of 448 x 160.
    const int64_t of_layer = 2 * (160 + 160) + 2 * (32 + 160) + 3 * (448 + 160) + 2 * 160;
    const int64_t elements = 2048 * 160 + 160 + 5 * (2 * 160 * 160 + 2 * 32 * 160 + 3 * 448 * 160 + 2 * 160);
    EXPECT_EQ(states, 4 * (2048 + 160 + 160 + 5 * of_layer) + (averages ? 4 * elements : 0));
    EXPECT_NE(run.err.find(fmt::format("optimizer {}", ToString(Bytes{states}))), std::string::npos) << run.err;
  }
}

// The result of a full run, in the type of config.json, and of an adapter is the average that the last checkpoint
// holds, on a mesh that of one rank; the checkpoint is of the weights.
TEST_F(Optimizers, TheResultIsTheAverageOnAnyMesh) {
  for (const bool lora : {true, false}) {
    SCOPED_TRACE(lora ? "lora" : "full");
    const std::string file = lora ? "adapter_model.safetensors" : "model.safetensors";
    const auto steps = [&](const std::string& out, const Arguments& mesh) {
      Arguments run = Steps({"--ema_decay", "0.5", "--max_steps", "4", "--max_seq_len", "48", "--learning_rate", "1e-3",
                             "--output_dir", out, "--per_device_train_batch_size", "1"});
      if (!lora) run = With(run, {"--method", "full"});
      const Ended ended = Temper(With(run, mesh));
      ASSERT_EQ(ended.code, 0) << ended.err;
      EXPECT_NE(ended.err.find("holds the moving average (ema_decay 0.5)"), std::string::npos) << ended.err;
    };
    const std::string one = lora ? "one_lora" : "one_full";
    steps(one, {"--gradient_accumulation_steps", "2"});
    const Tensors result = Read(Path(one + "/" + file));
    const std::string last = Path(one + "/checkpoint-4/");
    const Tensors weights = Read(last + file), states = Read(last + "state-00000-of-00001.safetensors");
    EXPECT_EQ(result.size(), weights.size());
    for (const auto& [name, tensor] : result) {
      const std::vector<float> given = Floats(tensor), average = Floats(states.at("ema:" + name));
      ASSERT_EQ(given.size(), average.size()) << name;
      for (size_t i = 0; i < given.size(); ++i) {
        ASSERT_NEAR(given[i], average[i], lora ? 0 : 0x1p-8 * std::fabs(average[i])) << name;
      }
      EXPECT_GT(ChangeOf(Floats(weights.at(name)), average).l2, 0) << name;
    }
    for (const char* mesh : {"fsdp=2", "pp=2"}) {
      SCOPED_TRACE(mesh);
      const std::string two = one + mesh;
      const bool splits_rows = std::string_view(mesh) == "fsdp=2";
      steps(two, {"--nprocs", "2", "--mesh", mesh, "--gradient_accumulation_steps", splits_rows ? "1" : "2"});
      for (const auto& [name, tensor] : Read(Path(two + "/" + file))) {
        const std::vector<float> expected = Floats(result.at(name)), got = Floats(tensor);
        const Change all = ChangeOf(std::vector<float>(got.size()), expected), off = ChangeOf(expected, got);
        // AdamW makes the roundings of a gradient near 0 steps of the learning rate.
        EXPECT_LE(off.l2, 5e-3 * all.l2) << name;
      }
    }
  }
}

// At a rate whose steps are below half of a weight's last place in bf16, where rounding to the nearest would lose them:
// without masters the loss falls as in f32, on a mesh as on one rank; weights are saved as they are trained.
TEST_F(Optimizers, WithoutMastersSmallStepsAddUp) {
  // The mean of the last ten steps: single rows' losses differ by more than is learned.
  const auto last_losses = [&](const std::string& out, const Arguments& options) {
    const Ended run = Temper(With(Steps({"--method", "full", "--learning_rate", "2e-5", "--max_steps", "30",
                                         "--save_steps", "30", "--output_dir", out}),
                                  options));
    EXPECT_EQ(run.code, 0) << run.err;
    double sum = 0;
    for (const auto& [step, loss] : Losses(Path(out))) sum += step > 20 ? loss : 0;
    return sum / 10;
  };
  const Arguments rounding = {"--dtype", "bf16", "--stochastic_rounding", "true"};
  const double frozen = last_losses("frozen", {"--learning_rate", "0"}), in_f32 = last_losses("f32", {}),
               rounded = last_losses("rounded", rounding), learned = frozen - in_f32;
  EXPECT_GT(learned, 0.5);
  EXPECT_NEAR(rounded, in_f32, 0.02 * learned);
  const double two_rows = last_losses("two_rows", With(rounding, {"--gradient_accumulation_steps", "2"})),
               split = last_losses("split", With(rounding, {"--mesh.fsdp", "2", "--nprocs", "2"}));
  EXPECT_NEAR(split, two_rows, 0.02 * learned);
  const Tensors saved = Read(Path("rounded/checkpoint-30/model.safetensors"));
  for (const auto& [name, tensor] : saved) EXPECT_EQ(tensor.first.dtype, DType::kBF16) << name;
  for (const auto& [name, tensor] : Read(Path("rounded/checkpoint-30/state-00000-of-00001.safetensors"))) {
    EXPECT_TRUE(name.starts_with("adam_")) << name;
  }
  const Ended further = Temper({"generate", "rounded/checkpoint-30", "--prompt", "Ahoy", "--max_new_tokens", "2"});
  EXPECT_EQ(further.code, 0) << further.err;
}

TEST_F(Optimizers, StochasticRoundingInVainIsRefused) {
  for (const auto& [options, wanted] :
       {std::pair{Arguments{"--dtype", "bf16"},
                  "stochastic_rounding saves the f32 copies of a model's weights, but method is"},
        {Arguments{"--method", "full", "--dtype", "f32"},
         "stochastic_rounding is for weights that are trained in bf16"},
        {Arguments{"--method", "full", "--dtype", "bf16", "--memory.bf16_weights", "cast"},
         "stochastic_rounding keeps no f32 masters, from which memory.bf16_weights: cast makes the weights"}}) {
    const Ended ended = Temper(With(Steps({"--stochastic_rounding", "true"}), options));
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.err.find(wanted), std::string::npos) << ended.err;
  }
}

// A file for no average: an option in vain is refused.
TEST_F(Optimizers, AnEvaluatedAverageNeedsOneAndSomethingToEvaluate) {
  for (const auto& [options, wanted] :
       {std::pair{Arguments{"--ema_eval", "true", "--eval_fraction", "0.2"},
                  "ema_eval evaluates the average of ema_decay, which is 0: set it, say to 0.999, or remove ema_eval"},
        {Arguments{"--ema_eval", "true", "--ema_decay", "0.9"},
         "ema_eval chooses what is evaluated: add eval_data or eval_fraction"},
        {Arguments{"--ema_decay", "1"}, "ema_decay"},
        {Arguments{"--optimizer", "adafactor", "--adafactor_decay_rate", "0.8"}, "adafactor_decay_rate"}}) {
    const Ended ended = Temper(Steps(options));
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.err.find(wanted), std::string::npos) << ended.err;
  }
}

// The blocks of a mesh are those of one rank: what two ranks have saved, one goes on with, and the other way round.
TEST_F(Optimizers, StatesOf8BitsResumeOnAnotherMesh) {
  const auto steps = [&](const std::string& out, const std::string& ranks, int count, const Arguments& more = {}) {
    const bool two = ranks == "2";
    Arguments run = Steps({"--method", "full", "--optimizer", "adamw_8bit", "--learning_rate", "1e-3", "--max_steps",
                           fmt::format("{}", count), "--max_seq_len", "48", "--output_dir", out,
                           "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", two ? "1" : "2"});
    if (two) run = With(run, {"--nprocs", "2", "--mesh", "fsdp=2"});
    std::erase(run, "--overwrite");
    const Ended ended = Temper(With(run, more));
    ASSERT_EQ(ended.code, 0) << ended.err;
  };
  steps("whole", "1", 6);
  const auto whole = Losses(Path("whole"));
  for (const std::string first : {"1", "2"}) {
    SCOPED_TRACE(first + " ranks first");
    const std::string out = "out" + first;
    steps(out, first, 3);
    steps(out, first == "1" ? "2" : "1", 6, {"--resume"});
    const auto losses = Losses(Path(out));
    ASSERT_EQ(losses.size(), whole.size());
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, whole.at(step), 1e-5 * loss) << step;
  }
}

TEST_F(Optimizers, AMeshThatCutsWhatIsToStayWholeIsRefusedByName) {
  for (const auto& [optimizer, mesh, ranks, wanted] :
       {std::tuple{"muon", "fsdp=2", "2",
                   "optimizer muon works on whole matrices, and mesh fsdp=2 splits model.layers."},
        {"adafactor", "fsdp=2", "2", "optimizer adafactor works on whole "},
        {"adafactor", "cp=2", "2", "optimizer adafactor works on whole "},
        {"adamw_8bit", "fsdp=8", "8",
         "optimizer adamw_8bit keeps states in blocks of 256 elements, which have to be whole, and mesh fsdp=8 splits "
         "model.layers.0.self_attn.q_proj.weight over fsdp: keep it whole"}}) {
    const Ended ended = Temper({"plan", "--model", kModel, "--method", "full", "--optimizer", optimizer, "--mesh", mesh,
                                "--nprocs", ranks, "--max_seq_len", "64"});
    EXPECT_NE(ended.code, 0) << ended.out;
    EXPECT_NE(ended.err.find(wanted), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace temper::program::optimizers_test

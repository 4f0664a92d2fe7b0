// DoRA: an adapter with magnitudes, from its first step to the merged model.
#include <cmath>
#include <filesystem>

#include "temper_program.h"

namespace temper::program::dora_test {
namespace {

class Dora : public Workplace {
 protected:
  Arguments Run(const Arguments& more) const {
    return With(Train({"--dtype", "f32", "--learning_rate", "2e-3", "--lr_scheduler_type", "constant", "--max_steps",
                       "6", "--overwrite"}),
                more);
  }
  Arguments Steps(const Arguments& more) const { return With(Run({"--lora.use_dora", "true"}), more); }
  void RunWell(const Arguments& arguments) const {
    const Ended ended = Temper(arguments);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  double Evaluated(const std::string& model, const Arguments& more = {}) const {
    const Ended ended = Temper(With({"eval", model, "--data", "e.jsonl", "--max_seq_len", "96"}, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? Json::parse(ended.out)["eval_loss"].get<double>() : 0;
  }
};

TEST_F(Dora, BeginsAsItsBaseAndItsResultIsReadMergedAndTrainedOn) {
  struct Case {
    std::string name;
    Arguments run, lora;
  };
  const Case cases[] = {{"f32", {"--dtype", "f32"}, {}},
                        {"bf16", {"--dtype", "bf16"}, {"--lora.use_rslora", "true"}},
                        {"dropout", {"--dtype", "f32"}, {"--lora.dropout", "0.1"}},
                        {"int8", {"--dtype", "bf16", "--base_dtype", "int8"}, {}},
                        {"nf4", {"--dtype", "bf16", "--base_dtype", "nf4"}, {}}};
  for (const auto& [name, run, lora] : cases) {
    SCOPED_TRACE(name);
    const std::string out = "out_" + name, plain = "plain_" + name, merged = "merged_" + name, on = "on_" + name;
    RunWell(With(With(Steps({"--output_dir", out}), run), lora));
    // Magnitudes over norms are 1 to the last bit before they learn. What is added behind a product is a pass of its
    // own where it is scaled: in bf16 one rounding more, of 2^-9.
    RunWell(With(With(Run({"--output_dir", plain, "--max_steps", "1"}), run), lora));
    const double first = Losses(Path(plain)).at(1);
    EXPECT_NEAR(Losses(Path(out)).at(1), first, (run[1] == "f32" ? 1e-6 : 0x1p-9) * first);
    const double before = Evaluated(kModel, run), trained = Evaluated(out, run);
    EXPECT_LT(trained, before - 0.01);
    ExpectEnd(Temper({"inspect", out}), 0, {});
    ExpectEnd(Temper(With({"generate", out, "--prompt", "It is", "--max_new_tokens", "4"}, run)), 0, {});
    if (run.size() == 2) {  // a quantised base is merged as its files have it
      RunWell({"export", out, "--output_dir", merged, "--dtype", "f32"});
      EXPECT_NEAR(Evaluated(merged, {"--dtype", "f32"}), trained, (name == "bf16" ? 1e-2 : 1e-5) * trained);
    }
    // The settings of the adapter come from its file.
    RunWell(With(Run({"--adapter", out, "--output_dir", on}), run));
    EXPECT_LT(Evaluated(on, run), trained);
    EXPECT_TRUE(Json::parse(Slurp(on + "/adapter_config.json"))["use_dora"].get<bool>());
  }
}

TEST_F(Dora, AnyMeshTrainsAsOneRankAndResumesWhatAnyOtherSaved) {
  struct Mesh {
    std::string name;
    Arguments options;
  };
  const Mesh meshes[] = {{"one", {"--gradient_accumulation_steps", "2"}},
                         {"dp", {"--nprocs", "2", "--mesh", "dp=2"}},
                         {"fsdp", {"--nprocs", "2", "--mesh", "fsdp=2"}},
                         {"pp", {"--nprocs", "2", "--mesh", "pp=2", "--gradient_accumulation_steps", "2"}},
                         {"cp", {"--nprocs", "2", "--mesh", "cp=2", "--gradient_accumulation_steps", "2"}}};
  std::map<int64_t, double> expected;
  for (const Mesh& mesh : meshes) {
    SCOPED_TRACE(mesh.name);
    RunWell(With(Steps({"--output_dir", mesh.name, "--save_steps", "3"}), mesh.options));
    const auto losses = Losses(Path(mesh.name));
    if (expected.empty()) expected = losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * loss) << "step " << step;
    EXPECT_NEAR(Evaluated(mesh.name, {"--dtype", "f32"}), Evaluated("one", {"--dtype", "f32"}), 1e-4);
  }
  for (const char* from : {"one", "fsdp"}) {
    SCOPED_TRACE(from);
    for (const char* name : {"checkpoint-6", "adapter_model.safetensors", "adapter_config.json"}) {
      ASSERT_TRUE(PosixEnv().RemoveTree(Path(JoinPath(from, name))).ok());
    }
    Arguments on =
        With(Steps({"--output_dir", from, "--save_steps", "3"}), meshes[from == meshes[0].name ? 2 : 4].options);
    std::erase(on, "--overwrite");
    on.push_back("--resume");
    RunWell(on);
    for (const auto& [step, loss] : Losses(Path(from))) {
      EXPECT_NEAR(loss, expected.at(step), 2e-4 * loss) << "step " << step;
    }
  }
}

TEST_F(Dora, AStoppedRunEndsWithTheSameBytes) {
  const Arguments run = With(Steps({"--save_steps", "3", "--lora.dropout", "0.1", "--dtype", "bf16"}), {});
  RunWell(With(run, {"--output_dir", "whole"}));
  std::filesystem::copy(Path("whole"), Path("out"), std::filesystem::copy_options::recursive);
  for (const char* name : {"checkpoint-6", "adapter_model.safetensors", "adapter_config.json"}) {
    ASSERT_TRUE(PosixEnv().RemoveTree(Path(JoinPath("out", name))).ok());
  }
  Arguments on = run;
  std::erase(on, "--overwrite");
  on.push_back("--resume");
  RunWell(on);
  EXPECT_EQ(Slurp("out/adapter_model.safetensors"), Slurp("whole/adapter_model.safetensors"));
  EXPECT_EQ(Slurp("out/checkpoint-6/state-00000-of-00001.safetensors"),
            Slurp("whole/checkpoint-6/state-00000-of-00001.safetensors"));
  ExpectEnd(Temper(With(on, {"--lora.use_dora", "false"})), 2, {"lora.use_dora"});
}

TEST_F(Dora, WhatIsNotThereIsRefusedByItsName) {
  ExpectEnd(Temper(Steps({"--lora.target_modules", "q_proj,lm_head"})), 2, {"lora.use_dora: DoRA of lm_head"});
}

}  // namespace
}  // namespace temper::program::dora_test

// Modules that are trained in full beside an adapter, LoRA+, and groups with rates of their own.
#include <cmath>
#include <filesystem>
#include <set>

#include "file_tensors.h"
#include "format/lora_config.h"
#include "temper_program.h"

namespace temper::program::trainable_test {
namespace {

std::pair<TensorType, std::vector<std::byte>> NormsOfRows(const std::pair<TensorType, std::vector<std::byte>>& weight) {
  const std::vector<float> x = Floats(weight);
  const int64_t rows = weight.first.shape[0];
  std::vector<std::byte> bytes(static_cast<size_t>(4 * rows));
  for (int64_t r = 0, n = std::ssize(x) / rows; r < rows; ++r) {
    double squares = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i)
      squares += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(i)];
    const auto norm = static_cast<float>(std::sqrt(squares));
    std::memcpy(bytes.data() + 4 * r, &norm, 4);
  }
  return {{DType::kF32, {rows}}, std::move(bytes)};
}

std::pair<TensorType, std::vector<std::byte>> RowsOf(const std::pair<TensorType, std::vector<std::byte>>& table,
                                                     const Json& rows) {
  const int64_t bytes = std::ssize(table.second) / table.first.shape[0];
  std::pair<TensorType, std::vector<std::byte>> some{{table.first.dtype, {std::ssize(rows), table.first.shape[1]}}, {}};
  for (const Json& row : rows) {
    const auto begin = table.second.begin() + row.get<int64_t>() * bytes;
    some.second.insert(some.second.end(), begin, begin + bytes);
  }
  return some;
}

class Trainable : public Workplace {
 protected:
  // The example's model with a head of its own: its table times 0.9, as make_trainable_goldens.py has it.
  std::string Untied() const {
    const std::string folder = Path("untied");
    if (PosixEnv().IsFolder(folder)) return folder;
    CopyModel("untied");
    Tensors tensors = Read(kModel + "/model.safetensors");
    auto head = tensors.at("model.embed_tokens.weight");
    const std::vector<float> table = Floats(head);
    for (size_t i = 0; i < table.size(); ++i) {
      const float x = table[i] * 0.9f;
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      const auto rounded = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
      std::memcpy(head.second.data() + 2 * i, &rounded, 2);
    }
    tensors["lm_head.weight"] = std::move(head);
    Write(folder + "/model.safetensors", tensors);
    std::string config = temper::Slurp(folder + "/config.json");
    const std::string tied = "\"tie_word_embeddings\": true";
    TEMPER_CHECK(config.find(tied) != config.npos);
    temper::Spill(folder + "/config.json",
                  config.replace(config.find(tied), tied.size(), "\"tie_word_embeddings\": false"));
    return folder;
  }

  // An adapter as PEFT writes it for a case of the goldens, before it is trained: A and B of
  // goldens/adapters/preference, and the model's weights under the names of `change`.
  void WriteBeginning(const Json& wanted, const std::string& model, const std::string& folder) const {
    TEMPER_CHECK(PosixEnv().CreateFolders(folder).ok());
    Json config = Json::parse(temper::Slurp(kGoldens + "/adapters/preference/adapter_config.json"));
    config["base_model_name_or_path"] = model;
    if (wanted.contains("modules")) config["modules_to_save"] = wanted["modules"];
    if (wanted.value("ensure_weight_tying", false)) {
      config["ensure_weight_tying"] = true;
      config["modules_to_save"].push_back("model.embed_tokens");  // as PEFT does
    }
    Tensors tensors = Read(kGoldens + "/adapters/preference/adapter_model.safetensors");
    const Tensors base = Read(model + "/model.safetensors");
    if (wanted.contains("token_rows")) config["trainable_token_indices"] = wanted["token_rows"];
    for (const auto& [name, change] : wanted["change"].items()) {
      if (tensors.contains(name)) continue;
      if (const size_t end = name.find(".token_adapter."); end != name.npos) {
        const Json& rows = wanted["token_rows"];
        const bool of_head = name.find("lm_head") != name.npos, tied = !base.contains("lm_head.weight");
        tensors[name] = RowsOf(base.at(of_head && !tied ? "lm_head.weight" : "model.embed_tokens.weight"),
                               rows.is_array() ? rows : rows[of_head ? "lm_head" : "embed_tokens"]);
        continue;
      }
      std::string own = name.substr(std::string("base_model.model.").size());
      const std::string magnitudes = ".lora_magnitude_vector";
      if (own.ends_with(magnitudes)) {
        tensors[name] = NormsOfRows(base.at(own.substr(0, own.size() - magnitudes.size()) + ".weight"));
        continue;
      }
      if (!base.contains(own)) own = "model.embed_tokens.weight";
      tensors[name] = base.at(own);
    }
    if (wanted.value("use_dora", false)) config["use_dora"] = true;
    temper::Spill(folder + "/adapter_config.json", config.dump());
    Write(folder + "/adapter_model.safetensors", tensors);
  }

  Arguments Steps(const Arguments& more) const {
    return With(Train({"--dtype", "f32", "--learning_rate", "1e-3", "--overwrite"}), more);
  }
  void RunWell(const Arguments& arguments) const {
    const Ended ended = Temper(arguments);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  double Evaluated(const Arguments& more) const {
    Arguments arguments = {"eval"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments = With(arguments, {"--data", "e.jsonl", "--max_seq_len", "96"});
    const Ended ended = Temper(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? Json::parse(ended.out)["eval_loss"].get<double>() : 0;
  }
};

// tests/parity/make_trainable_goldens.py: three steps of PEFT's modules_to_save and create_loraplus_optimizer on all
// rows at once, from an adapter as PEFT writes it: losses, norms, and how far every tensor of the adapter's file moves.
TEST_F(Trainable, StepsAreThoseOfPeft) {
  const Json golden = Json::parse(temper::Slurp(kGoldens + "/trainable.json"));
  std::string rows;
  for (const Json& row : golden["rows"]) rows += Json{{"text", row}}.dump() + "\n";
  Spill("golden.jsonl", rows);
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const std::string model = wanted.value("untied", false) ? Untied() : kModel, begin = Path("begin_" + name);
    WriteBeginning(wanted, model, begin);
    Arguments run = Steps({"--model", model, "--adapter", begin, "--data", "golden.jsonl", "--max_seq_len", "512",
                           "--max_steps", std::to_string(wanted["steps"].size()), "--lr_scheduler_type", "constant",
                           "--learning_rate", golden["learning_rate"].dump()});
    if (wanted.contains("lora_plus_ratio")) run = With(run, {"--lora_plus_ratio", wanted["lora_plus_ratio"].dump()});
    if (wanted.contains("weight_decay")) run = With(run, {"--weight_decay", wanted["weight_decay"].dump()});
    for (const Json& group : wanted.value("groups", Json::array())) {
      run.insert(run.end(), {"--optimizer_groups", group.dump()});
    }
    RunWell(run);
    const std::vector<Json> steps = Lines(Slurp("out/metrics.jsonl"));
    ASSERT_EQ(steps.size(), wanted["steps"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        const double number = value.get<double>();
        EXPECT_NEAR(steps[i][report].get<double>(), number, 5e-5 * number) << "step " << i + 1 << " " << report;
      }
      EXPECT_EQ(steps[i]["learning_rate"], golden["learning_rate"]) << "the run's, whatever groups have";
    }
    const Tensors before = Read(begin + "/adapter_model.safetensors"),
                  after = Read(Path("out/adapter_model.safetensors"));
    ASSERT_EQ(after.size(), wanted["change"].size());
    for (const auto& [tensor, change] : wanted["change"].items()) {
      ASSERT_TRUE(after.contains(tensor)) << tensor;
      const std::vector<float> a = Floats(before.at(tensor)), b = Floats(after.at(tensor));
      ASSERT_EQ(a.size(), b.size()) << tensor;
      const Change made = ChangeOf(a, b);
      const double l2 = change["l2"].get<double>();
      EXPECT_NEAR(made.l2, l2, 1e-4 * l2) << tensor;
      EXPECT_NEAR(made.sum, change["sum"].get<double>(), 1e-4 * l2 * std::sqrt(static_cast<double>(a.size())))
          << tensor;
    }
    const Json config = Json::parse(Slurp("out/adapter_config.json"));
    EXPECT_EQ(config["modules_to_save"].is_null(), !wanted.contains("modules"));
    EXPECT_EQ(config.value("trainable_token_indices", Json()), wanted.value("token_rows", Json()));
  }
}

const Arguments kModules = {"--train_modules", "embed_tokens,lm_head,norm,v_proj"};

// Of a tied model: with copies of table and head apart, and with one for both.
TEST_F(Trainable, ResultsAreReadMergedAndTrainedOn) {
  struct Case {
    std::string name, model;
    Arguments modules;
    bool untied;  // the export has table and head
  };
  const Case cases[] = {{"untied", Untied(), kModules, true},
                        {"tied", kModel, {"--train_modules", "embed_tokens"}, true},
                        {"head", kModel, {"--train_modules", "lm_head"}, true},
                        {"kept", kModel, {"--train_modules", "lm_head", "--lora.ensure_weight_tying", "true"}, false},
                        {"rows", kModel, {"--lora.trainable_token_indices", "303,17,20-23"}, false},
                        {"rows_untied",
                         Untied(),
                         {"--lora.trainable_token_indices", "{embed_tokens: [303, 17], lm_head: [20, 303]}"},
                         true},
                        {"rows_int8",
                         kModel,
                         {"--lora.trainable_token_indices", "303,17,20-23", "--dtype", "bf16", "--base_dtype", "int8",
                          "--embedding_dtype", "int8"},
                         false},
                        {"int8",
                         kModel,
                         {"--train_modules", "embed_tokens,v_proj", "--dtype", "bf16", "--base_dtype", "int8",
                          "--embedding_dtype", "int8"},
                         true}};
  for (const auto& [name, model, modules, untied] : cases) {
    SCOPED_TRACE(name);
    const std::string out = "out_" + name, merged = "merged_" + name;
    const double before = Evaluated({model, "--dtype", "f32"});
    Arguments run = Steps({"--model", model, "--output_dir", out, "--max_steps", "6"});
    run = With(run, modules);
    RunWell(run);
    const double trained = Evaluated({out, "--dtype", "f32"});
    EXPECT_LT(trained, before - 0.01);
    RunWell({"export", out, "--output_dir", merged, "--dtype", "f32"});
    EXPECT_NEAR(Evaluated({merged, "--dtype", "f32"}), trained, 1e-4 * trained);
    EXPECT_EQ(Read(Path(merged + "/model.safetensors")).contains("lm_head.weight"), untied);
    const Json config = Json::parse(Slurp(merged + "/config.json"));
    EXPECT_EQ(config["tie_word_embeddings"], !untied);
    RunWell({"inspect", out});
    ExpectEnd(Temper({"generate", out, "--prompt", "It is", "--max_new_tokens", "4", "--dtype", "f32"}), 0, {});
    // The settings of the adapter come from its file.
    RunWell(Steps({"--model", model, "--adapter", out, "--output_dir", "on_" + name}));
    EXPECT_LT(Evaluated({"on_" + name, "--dtype", "f32"}), trained);
    const Tensors first = Read(Path(out + "/adapter_model.safetensors")),
                  second = Read(Path("on_" + name + "/adapter_model.safetensors"));
    ASSERT_EQ(first.size(), second.size());
    for (const auto& [tensor, content] : first) EXPECT_NE(content.second, second.at(tensor).second) << tensor;
  }
}

// The loss of a mesh's run, in the end, and all that it saves.
TEST_F(Trainable, AnyMeshResumesWhatAnyOtherSaved) {
  const auto steps = [&](const std::string& out, const Arguments& mesh) {
    Arguments run =
        Steps({"--model", Untied(), "--output_dir", out, "--max_steps", "6", "--save_steps", "3",
               "--gradient_accumulation_steps", "2", "--lora_plus_ratio", "4", "--lr_scheduler_type", "constant"});
    run = With(run, kModules);
    run = With(run, mesh);
    return run;
  };
  const std::vector<Arguments> meshes = {{},
                                         {"--nprocs", "2", "--mesh", "fsdp=2", "--gradient_accumulation_steps", "1"},
                                         {"--nprocs", "2", "--mesh", "pp=2"},
                                         {"--nprocs", "2", "--mesh", "cp=2"}};
  RunWell(steps("whole", {}));
  const auto expected = Losses(Path("whole"));
  const Tensors weights = Read(Path("whole/adapter_model.safetensors"));
  const Json manifest = Json::parse(Slurp("whole/checkpoint-3/manifest.json"));
  std::set<std::string> full;
  for (const Json& tensor : manifest["tensors"]) {
    if (tensor.contains("kind")) full.insert(tensor["name"].get<std::string>());
  }
  EXPECT_TRUE(full.contains("base_model.model.lm_head.weight") &&
              full.contains("adam_m:base_model.model.model.norm.weight"));
  EXPECT_EQ(full.size(), 3u * (2 + 11 + 5)) << "table and head, norms, five v_proj";
  for (size_t i = 0; i < meshes.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string out = fmt::format("mesh{}", i);
    const Arguments to = steps(out, meshes[(i + 1) % meshes.size()]);
    RunWell(With(steps(out, meshes[i]), {"--max_steps", "3"}));
    Arguments on;
    for (const std::string& argument : to) {
      if (argument != "--overwrite") on.push_back(argument);
    }
    on.push_back("--resume");
    RunWell(on);
    for (const auto& [step, loss] : Losses(Path(out))) {
      EXPECT_NEAR(loss, expected.at(step), 2e-4 * loss) << "step " << step;
    }
    EXPECT_EQ(Read(Path(out + "/adapter_model.safetensors")).size(), weights.size());
  }
}

TEST_F(Trainable, RowsAreTrainedOnMeshesAsOnOneRank) {
  struct Case {
    std::string name, model, rows;
  };
  const Case cases[] = {{"tied", kModel, "303,17,20-22"},
                        {"untied", Untied(), "{embed_tokens: [303, 17], lm_head: [20, 303, 19]}"}};
  for (const auto& [name, model, rows] : cases) {
    SCOPED_TRACE(name);
    const auto steps = [&](const std::string& out, const Arguments& mesh) {
      return With(Steps({"--model", model, "--output_dir", out, "--max_steps", "4", "--gradient_accumulation_steps",
                         "2", "--lora.trainable_token_indices", rows}),
                  mesh);
    };
    RunWell(steps("one_" + name, {}));
    const auto expected = Losses(Path("one_" + name));
    const Tensors weights = Read(Path("one_" + name + "/adapter_model.safetensors"));
    for (const char* mesh : {"dp=2", "fsdp=2", "pp=2", "cp=2"}) {
      SCOPED_TRACE(mesh);
      const std::string out = name + mesh;
      Arguments on = steps(out, {"--nprocs", "2", "--mesh", mesh});
      if (std::string_view(mesh) == "dp=2" || std::string_view(mesh) == "fsdp=2") {
        on = With(on, {"--gradient_accumulation_steps", "1"});
      }
      RunWell(on);
      for (const auto& [step, loss] : Losses(Path(out))) {
        EXPECT_NEAR(loss, expected.at(step), 1e-5 * loss) << "step " << step;
      }
      const Tensors got = Read(Path(out + "/adapter_model.safetensors"));
      ASSERT_EQ(got.size(), weights.size());
      for (const auto& [tensor, content] : weights) EXPECT_EQ(got.at(tensor).first, content.first) << tensor;
    }
  }
}

TEST_F(Trainable, RowsThatCannotBeTrainedAreRefusedWithTheRemedy) {
  const auto refused = [&](const Arguments& more, const Arguments& said) {
    ExpectEnd(Temper(Steps(With({"--output_dir", "refused"}, more))), 2, said);
  };
  refused({"--lora.trainable_token_indices", "5", "--lora.trainable_token_indices", "{lm_head: [5]}"},
          {"a list of rows stands beside a map"});
  refused({"--lora.trainable_token_indices", "{d_tokens: [3]}"}, {"'d_tokens' is no table of words"});
  refused({"--lora.trainable_token_indices", "{embed_tokens: [5], model.embed_tokens: [7]}"},
          {"are the same table: list its rows once"});
  refused({"--lora.trainable_token_indices", "0-70000"}, {"at most 65536 rows"});
  ExpectEnd(Temper({"plan", "--model", "llama-3.1-8b", "--cluster", "8xH100", "--nprocs", "2", "--mesh", "tp=2",
                    "--lora.trainable_token_indices", "5"}),
            1, {"lora.trainable_token_indices: tensor ranks do not share the rows", "mesh.fsdp"});
}

// Of the start of a run, whatever the rows are: the model's own.
TEST_F(Trainable, AReferenceHasItsOwnRows) {
  Spill("pairs.jsonl", R"({"prompt": "a", "chosen": " b c", "rejected": " d"})"
                       "\n");
  RunWell(Train({"--task", "dpo", "--data", "pairs.jsonl", "--reference", kModel, "--learning_rate", "0", "--max_steps",
                 "1", "--lora.trainable_token_indices", "0-100", "--dtype", "f32", "--overwrite"}));
  EXPECT_NEAR(Losses(Path("out")).at(1), std::log(2.0), 1e-5) << "nothing was trained";
}

TEST_F(Trainable, AStoppedRunEndsWithTheSameBytes) {
  const Arguments run = With(Train({"--max_steps", "6", "--save_steps", "3", "--optimizer_groups",
                                    "{modules: lm_head, learning_rate: 1e-5}", "--lora_plus_ratio", "8"}),
                             kModules);
  RunWell(With(run, {"--output_dir", "whole"}));
  std::filesystem::copy(Path("whole"), Path("out"), std::filesystem::copy_options::recursive);
  for (const char* name : {"checkpoint-6", "adapter_model.safetensors", "adapter_config.json"}) {
    ASSERT_TRUE(PosixEnv().RemoveTree(Path(JoinPath("out", name))).ok());
  }
  Arguments on = run;
  on.push_back("--resume");
  RunWell(on);
  EXPECT_EQ(Slurp("out/adapter_model.safetensors"), Slurp("whole/adapter_model.safetensors"));
  EXPECT_EQ(Slurp("out/checkpoint-6/state-00000-of-00001.safetensors"),
            Slurp("whole/checkpoint-6/state-00000-of-00001.safetensors"));
  // What is trained is what a resumed run may not change; how fast, it may.
  Arguments other = With(on, {"--train_modules", "embed_tokens"});
  ExpectEnd(Temper(other), 2, {"train_modules"});
  Arguments faster = With(on, {"--lora_plus_ratio", "2", "--max_steps", "8"});
  ExpectEnd(Temper(faster), 0, {"lora_plus_ratio 8 -> 2"});
}

TEST_F(Trainable, WhatCannotBeMeantIsRefused) {
  const std::string rows = "--lora.trainable_token_indices";
  ExpectEnd(Temper(Train({rows, "2048"})), 2, {"2048 is no row of model.embed_tokens, which has 0 to 2047"});
  ExpectEnd(Temper(Train({rows, "[5, 5]"})), 2, {"5 is listed twice: list it once"});
  ExpectEnd(Temper(Train({rows, "{norm: [1]}"})), 2,
            {"'norm' is no table of words; this model has model.embed_tokens"});
  ExpectEnd(Temper(Train({rows, "five"})), 2, {"a list of rows should be like 5,7-9"});
  ExpectEnd(Temper(Train({rows, "5", "--train_modules", "embed_tokens"})), 2, {"is trained in full, too"});
  ExpectEnd(Temper(Train({rows, "5", "--lora.target_modules", "[lm_head, q_proj]"})), 2,
            {"lm_head has an adapter, too"});
  ExpectEnd(Temper(Train({rows, "5", "--method", "full"})), 2, {"which trains every row"});
  ExpectEnd(Temper(Train({"--train_modules", "lm_haed"})), 2, {"train_modules: 'lm_haed' is no module"});
  ExpectEnd(Temper(Train({"--train_modules", "mlp"})), 2, {"no module with weights of its own"});
  ExpectEnd(Temper(Train({"--train_modules", "lm_head", "--method", "full"})), 2, {"remove train_modules"});
}

}  // namespace
}  // namespace temper::program::trainable_test

// Bad input gives an error that names file, place and remedy,
// and a non-zero exit, before any costly work; nothing is lost.
#include <cmath>
#include <cstring>
#include <limits>

#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "format/model_weights.h"
#include "format/safetensors_writer.h"
#include "temper_program.h"

namespace temper::program::bad_input_test {
namespace {

class BadInput : public Workplace {
 protected:
  // `train` refuses the model with these words before it reads
  // the data, and leaves no output; `inspect` also refuses it.
  void ExpectModelRefused(const std::string& model, const std::vector<std::string>& parts, int code = 1) const {
    const Ended ended = Temper(Train({"--model", model}));
    ExpectEnd(ended, code, parts);
    EXPECT_EQ(ended.err.find("data        "), std::string::npos) << "the data was read first:\n" << ended.err;
    EXPECT_FALSE(Has("out"));
    const Ended inspected = Temper({"inspect", model});
    EXPECT_NE(inspected.code, 0) << inspected.out;
    EXPECT_NE(inspected.err.find(parts.back()), std::string::npos) << inspected.err;
  }

  // A safetensors file with this header over `data` bytes.
  static std::string Safetensors(const std::string& header, size_t data) {
    const uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes + header + std::string(data, '\0');
  }

  // Writes the example's model to `name` with its tensors changed by `change`: (tensors as f32, by name).
  using Tensors = std::map<std::string, std::pair<Shape, std::vector<float>>>;
  std::string ChangedModel(const std::string& name, const std::function<void(Tensors&)>& change) const {
    const std::string model = CopyModel(name);
    Tensors tensors;
    {
      const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), kModel));
      for (const ModelWeights::Entry& e : weights.entries()) {
        auto& [shape, values] = tensors[e.tensor->name];
        shape = Must(e.tensor->type()).shape;
        values.resize(static_cast<size_t>(shape.elements()));
        TEMPER_CHECK(e.file->ReadAs(e.tensor->name, DType::kF32, std::as_writable_bytes(std::span(values))).ok());
      }
    }
    change(tensors);
    std::vector<TensorDeclaration> declared;
    for (const auto& [tensor, content] : tensors) declared.push_back({tensor, {DType::kF32, content.first}});
    auto writer = Must(SafetensorsWriter::Create(PosixEnv(), model + "/model.safetensors", declared));
    for (const StoredTensor& t : writer.order()) {
      TEMPER_CHECK(writer.Append(t.name, std::as_bytes(std::span(tensors.at(t.name).second))).ok());
    }
    TEMPER_CHECK(writer.Finish().ok());
    return model;
  }

  // Replaces `from` in a file of the model once.
  void Edit(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = Slurp(file);
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    Spill(file, text);
  }
};

TEST_F(BadInput, AnUnknownKeyIsAnErrorThatNamesTheNearest) {
  ExpectEnd(Temper(Train({"--lerning_rate", "1e-4"})), 2,
            {"unknown option --lerning_rate; did you mean 'learning_rate'?"});
  ExpectEnd(Temper(Train({"--cutoff_len", "9"})), 2, {"its name here is 'max_seq_len'"});
  Spill("run.yaml", "seed: 1\nlora:\n  rnak: 8\n");
  Arguments run = Train({});
  run.insert(run.begin() + 1, "run.yaml");
  ExpectEnd(Temper(run), 2, {"run.yaml line 3: unknown key 'lora.rnak'"});
  Spill("run.yaml", "model_name_or_path: m\nlora_rank: 8\ncutoff_len: 9\n");
  ExpectEnd(Temper(run), 2,
            {"run.yaml: 3 mistakes:", "line 1: unknown key", "line 2: unknown key", "line 3: unknown key"});
  Spill("run.yaml", "seed: 1\nlearning_rate: fast\n");
  ExpectEnd(Temper(run), 2, {"run.yaml line 2: learning_rate should be a number, but is 'fast'"});
  ExpectEnd(Temper({"generate", "--model", kModel, "--promt", "x"}), 2, {"did you mean 'prompt'?"});
  Spill("run.yaml", "lora: [\n");
  ExpectEnd(Temper(run), 2, {"run.yaml line 1: not valid YAML: 'lora: [': the bracket [ is not closed"});
  run[1] = "missing.yaml";
  ExpectEnd(Temper(run), 2, {"missing.yaml", "No such file"});
}

TEST_F(BadInput, AllUnknownOptionsAreNamedAtOnce) {
  ExpectEnd(Temper(Train({"--stage", "dpo", "--pref_beta", "0.1", "--cutoff-len", "9", "--foo_bar_baz", "a", "b"})), 2,
            {"command line: 4 mistakes:", "--stage; its name here is 'task'",
             "--pref_beta; its name here is 'dpo.beta'", "--cutoff-len; its name here is 'max_seq_len'",
             "--foo_bar_baz; --help lists all names", "temper import FILE turns a script"});
}

TEST_F(BadInput, ACommandOfAnotherToolLeadsToTheOneHere) {
  for (const auto& [command, here] : {std::pair{"dpo", "write temper train --task dpo"},
                                      {"merge", "temper export MODEL"},
                                      {"serve", "temper chat MODEL"},
                                      {"webui", "temper chat MODEL"},
                                      {"evaluate", "temper eval MODEL"},
                                      {"finetune", "temper train"},
                                      {"trian", "did you mean 'train'?"}}) {
    ExpectEnd(Temper({command}), 2, {fmt::format("there is no command '{}'", command), here});
  }
}

TEST_F(BadInput, ALoraSettingWithoutEffectGivesAWarning) {
  const Arguments idle = {"--lora.rank_pattern", "{qproj: 4}", "--lora.exclude_modules", "[lm_heed]"};
  for (const char* command : {"train", "plan"}) {
    Arguments run = Train(idle);
    run[0] = command;
    ExpectEnd(Temper(run), 0,
              {"warning: lora.rank_pattern: 'qproj' has no effect", "warning: lora.exclude_modules: 'lm_heed' excludes",
               "q_proj"});
  }
  const Ended fits = Temper(Train({"--output_dir", "second", "--lora.rank_pattern", "{q_proj: 4}"}));
  EXPECT_EQ(fits.err.find("lora."), std::string::npos) << fits.err;
}

TEST_F(BadInput, ACommandLineErrorExitsWith2WheneverItIsFound) {
  ExpectEnd(Temper(Train({"--mesh.sharding", "[[lm_head"})), 2, {"command line, mesh.sharding"});
  ExpectEnd(Temper(Train({"--lora.target_modules", "["})), 2, {"command line, lora.target_modules"});
  ExpectEnd(Temper(Train({"--packing", "no"})), 2, {"packing should be true or false, but is 'no'"});
  ExpectEnd(Temper({"eval", "--model", kModel, "--data", "d.jsonl", "--columns", "promt=q"}), 2,
            {"'promt' is no field of rows; did you mean 'prompt'?"});
  ExpectEnd(Temper({"generate", "--model", kModel, "--adapter", kModel, "--prompt", "x"}), 2,
            {"--adapter " + kModel + " is a model itself, not an adapter"});
}

TEST_F(BadInput, ATruncatedFileOfWeights) {
  const std::string model = CopyModel("model"), whole = Slurp("model/model.safetensors");
  Spill("model/model.safetensors", whole.substr(0, whole.size() - 1000));
  ExpectModelRefused("model", {"model/model.safetensors", "truncated"});
  Spill("model/model.safetensors", whole.substr(0, 100));
  ExpectModelRefused("model", {"model/model.safetensors is truncated", "fetch or copy it again"});
  Spill("model/model.safetensors", "");
  ExpectModelRefused("model", {"model/model.safetensors is empty; fetch or copy it again"});
}

TEST_F(BadInput, AFileOfWeightsWithOverlapsGapsOrWrongSizes) {
  const std::string model = CopyModel("model");
  const auto refused = [&](const std::string& header, size_t data, const std::vector<std::string>& parts) {
    SCOPED_TRACE(header);
    Spill("model/model.safetensors", Safetensors(header, data));
    ExpectModelRefused("model", parts);
  };
  refused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12, {"model/model.safetensors", "overlap"});
  refused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
      20, {"model/model.safetensors", "'b'"});
  refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, {"model/model.safetensors", "'a'"});
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 80, {"model/model.safetensors"});
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,)", 8, {"model/model.safetensors"});
}

TEST_F(BadInput, AMissingShardIsNamed) {
  const std::string model = CopyModel("model");
  ASSERT_TRUE(PosixEnv().RemoveFile(model + "/model.safetensors").ok());
  Spill("model/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  Spill("model/model-00001-of-00002.safetensors",
        Safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  ExpectModelRefused("model", {"model lacks 1 of the 2 shards", "'model-00002-of-00002.safetensors'", "download them"});
}

TEST_F(BadInput, AMissingTensorIsNamed) {
  ChangedModel("model", [](Tensors& t) { t.erase("model.layers.2.mlp.up_proj.weight"); });
  ExpectModelRefused(
      "model", {"model.layers.2.mlp.up_proj.weight is missing", "the nearest name there is", "download it again"});
  // A few are missing and others are not needed: old files have a table per block.
  ChangedModel("old", [](Tensors& t) {
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = t["model.norm.weight"];
    t.erase("model.layers.2.mlp.up_proj.weight");
  });
  ExpectModelRefused("old", {"model.layers.2.mlp.up_proj.weight is missing", "download it again"});
  ChangedModel("renamed", [](Tensors& tensors) {
    Tensors renamed;
    for (auto& [name, content] : tensors) renamed["base." + name] = std::move(content);
    tensors = std::move(renamed);
  });
  ExpectModelRefused("renamed", {"model.embed_tokens.weight is missing, and 46 more of 47",
                                 "the nearest name there is 'base.model.embed_tokens.weight'",
                                 "47 tensors under names that the model of config.json does not have"});
  ChangedModel("shards", [](Tensors& t) { t.erase("model.layers.2.mlp.up_proj.weight"); });
  ASSERT_TRUE(PosixEnv().Rename(Path("shards/model.safetensors"), Path("shards/a.safetensors")).ok());
  Spill("shards/model.safetensors.index.json",
        R"({"weight_map": {"model.layers.2.mlp.up_proj.weight": "a.safetensors"}})");
  ExpectModelRefused("shards",
                     {"model.layers.2.mlp.up_proj.weight is missing",
                      "The index says that it is in 'a.safetensors', which lacks it", "download them together"});
}

// As transformers loads them: names without base_model_prefix or with two, and an index that lists what no shard has.
TEST_F(BadInput, IsNotAnotherPrefixNorAnIndexThatListsMore) {
  const auto renamed = [&](const std::string& folder, const std::function<std::string(std::string)>& name) {
    return ChangedModel(folder, [&](Tensors& tensors) {
      Tensors changed;
      for (auto& [own, content] : tensors) changed[name(own)] = std::move(content);
      tensors = std::move(changed);
    });
  };
  const auto loss = [&](const std::string& model) {
    const Ended ended =
        Temper({"eval", "--model", model, "--data", "e.jsonl", "--max_seq_len", "96", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.err.find("warning"), std::string::npos) << ended.err;
    return Json::parse(ended.out)["eval_loss"].get<double>();
  };
  const double same = loss(renamed("same", [](const std::string& name) { return name; }));
  EXPECT_EQ(loss(renamed("bare", [](const std::string& name) { return name.substr(name.find('.') + 1); })), same);
  const auto twice = [](const std::string& name) { return name.starts_with("model.") ? "model." + name : name; };
  EXPECT_EQ(loss(renamed("twice", twice)), same);
  ASSERT_TRUE(PosixEnv().Rename(Path("same/model.safetensors"), Path("same/a.safetensors")).ok());
  Spill("same/model.safetensors.index.json", R"({"weight_map": {"mtp.fc.weight": "a.safetensors"}})");
  EXPECT_EQ(loss("same"), same);
}

TEST_F(BadInput, AWrongShapeIsNamedWithBoth) {
  ChangedModel("model", [](Tensors& t) { t["model.layers.1.mlp.up_proj.weight"].first = {160, 448}; });
  ExpectModelRefused("model", {"model/model.safetensors: tensor model.layers.1.mlp.up_proj.weight is [160, 448] but "
                               "config.json makes it [448, 160]",
                               "download both again"});
}

TEST_F(BadInput, AWrongDTypeIsNamed) {
  CopyModel("model");
  const size_t n = 160;
  std::string header = Slurp("model/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  // The last norm, with the same bytes as integers.
  Json json = Json::parse(header.substr(8, length));
  json["model.norm.weight"]["dtype"] = "I16";
  ASSERT_EQ(json["model.norm.weight"]["shape"][0], n);
  Spill("model/model.safetensors", Safetensors(json.dump(), header.size() - 8 - length));
  ExpectModelRefused("model", {"model.norm.weight", "I16", "BF16, F16 or F32"});
}

TEST_F(BadInput, AnUnsupportedArchitectureSaysWhatItNeeds) {
  CopyModel("model");
  Edit("model/config.json", "LlamaForCausalLM", "MambaForCausalLM");
  ExpectEnd(Temper(Train({"--model", "model"})), 1,
            {"model/config.json", "'MambaForCausalLM' is not supported: it needs state spaces (Mamba)"});
  EXPECT_FALSE(Has("out"));
}

TEST_F(BadInput, AnUnknownArchitectureListsTheSupported) {
  CopyModel("model");
  Edit("model/config.json", "LlamaForCausalLM", "NobodysForCausalLM");
  ExpectEnd(Temper(Train({"--model", "model"})), 1,
            {"model/config.json", "'NobodysForCausalLM' is not supported", "supported are ", ", LlamaForCausalLM, "});
  EXPECT_FALSE(Has("out"));
}

TEST_F(BadInput, ATruncatedTokenizerIsNamed) {
  CopyModel("model");
  const std::string whole = Slurp("model/tokenizer.json");
  Spill("model/tokenizer.json", whole.substr(0, whole.size() / 2));
  ExpectEnd(Temper({"inspect", "model"}), 1, {"model/tokenizer.json"});
  ExpectEnd(Temper(Train({"--model", "model"})), 1, {"model/tokenizer.json"});
  // A folder with only weights is valid as such.
  ASSERT_TRUE(PosixEnv().RemoveFile(Path("model/tokenizer.json")).ok());
  ExpectEnd(Temper({"inspect", "model"}), 0, {});
  ExpectEnd(Temper(Train({"--model", "model", "--output_dir", "second"})), 1, {"model: no tokenizer: "});
}

TEST_F(BadInput, APickleThatIsNoStateDictIsRefusedWithTheReason) {
  const std::string model = CopyModel("model");
  ASSERT_TRUE(PosixEnv().RemoveFile(model + "/model.safetensors").ok());
  Spill("model/pytorch_model.bin", "PK\x03\x04 and no more of it");
  ExpectModelRefused("model", {"model/pytorch_model.bin", "zip archive"});
  // One that would run a program, in the form of PyTorch before 1.6. Also renamed.
  const std::string magic("\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20j\xa8P\x19.", 15), version("\x80\x02M\xe9\x03.", 6);
  const std::string facts = "\x80\x02}.", runs =
                                              "\x80\x02"
                                              "cos\nsystem\n(X" +
                                              std::string("\x07\0\0\0", 4) + "touch ytR.";
  for (const char* file : {"model/pytorch_model.bin", "model/model.safetensors"}) {
    Spill(file, magic + version + facts + runs + "\x80\x02].");
    ExpectModelRefused("model", {file, "refers to 'os.system'", "neither knows nor runs"});
  }
}

TEST_F(BadInput, MissingDataIsFoundBeforeCompiling) {
  for (const char* option : {"--data", "--eval_data"}) {
    const Ended missing = Temper(Train({option, "missing.jsonl"}));
    ExpectEnd(missing, 1, {option, "missing.jsonl", "No such file"});
    EXPECT_EQ(missing.err.find("plan "), std::string::npos) << missing.err;
    ExpectEnd(Temper(Train({option, "*.csv"})), 1, {option, "no data file matches; looked in the working folder"});
  }
  EXPECT_FALSE(Has("out"));
}

TEST_F(BadInput, ABrokenLineIsNamedOrCounted) {
  Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 20) + "{\"messages\": [{\"role\": \"user\"\n" +
                       FirstLines(kExample + "/pirate_train.jsonl", 3) + "[1, 2]\n");
  const Ended ended = Temper(Train({}));
  ExpectEnd(ended, 1, {"d.jsonl line 21", "--skip_bad_rows"});
  EXPECT_FALSE(Has("out/run.yaml")) << "the run began";
  ExpectEnd(Temper(Train({"--skip_bad_rows"})), 0, {"2 bad rows skipped (8.00 %)", "the first: d.jsonl line 21"});
  ExpectEnd(Temper({"eval", "--model", kModel, "--data", "d.jsonl", "--threads", "1"}), 1, {"d.jsonl line 21"});
  // The quoted part of it cannot drive the terminal.
  Spill("d.jsonl", "{\"pro\\u001b[31mmpt\": \"\xc2\x9b\"}\n");
  ExpectEnd(Temper(Train({"--output_dir", "third"})), 1, {"The row has 'pro\\x1b[31mmpt'"});
}

TEST_F(BadInput, NothingSupervisedIsAnError) {
  Spill("d.jsonl", R"({"messages": [{"role": "user", "content": "Why?"}]})"
                   "\n");
  ExpectEnd(Temper(Train({})), 1,
            {"no token of d.jsonl is supervised", "nothing to train on",
             "the assistant's messages count toward the loss; train_on_prompt"});
  Spill("d.jsonl", "\n");
  ExpectEnd(Temper(Train({})), 1, {"d.jsonl is empty"});
}

TEST_F(BadInput, ASecondBosIsAnError) {
  const std::string model = CopyModel("model");
  // The template prints one; this tokenizer adds none to plain text.
  Edit("model/tokenizer_config.json", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}");
  ExpectEnd(Temper(Train({"--model", "model"})), 1, {"d.jsonl line 1: begins with BOS twice", "remove"});
}

// Many Llamas' tokenizers have a [PAD] that the model never saw.
TEST_F(BadInput, ATokenWithoutAnEmbeddingIsAnErrorIfUsed) {
  CopyModel("model");
  Json tokenizer = Json::parse(Slurp("model/tokenizer.json"));
  Json pad = tokenizer["added_tokens"][0];
  pad["id"] = 2048;
  pad["content"] = "[PAD]";
  tokenizer["added_tokens"].push_back(pad);
  Spill("model/tokenizer.json", tokenizer.dump());
  ExpectEnd(Temper(Train({"--model", "model", "--max_steps", "1"})), 0,
            {"the tokenizer has 2049 tokens, but the model has embeddings for 2048"});
  Spill("d.jsonl",
        FirstLines(kExample + "/pirate_train.jsonl", 3) +
            R"({"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "[PAD]"}]})"
            "\n");
  ExpectEnd(Temper(Train({"--model", "model", "--output_dir", "second"})), 1,
            {"d.jsonl line 4: has the token 2048 ('[PAD]'), but the model has embeddings for only 2048"});
  ExpectEnd(Temper({"generate", "--model", "model", "--prompt", "[PAD]"}), 2,
            {"the prompt has the token 2048 ('[PAD]')", "embeddings for only 2048"});
}

TEST_F(BadInput, OverlongRowsAreCutAndCounted) {
  ExpectEnd(Temper(Train({"--max_seq_len", "60", "--max_steps", "1"})), 0,
            {"cut: ", "rows (", "longer than max_seq_len", "tokens lost; raise --max_seq_len"});
}

// The embedding of one token is NaN: the row with that token gives a NaN loss, and the error names it.
// The error may first name a document that is packed beside it: attention multiplies masked keys by zero, and zero
// times NaN is NaN.
TEST_F(BadInput, ANanLossStopsTheRunAndNamesTheRow) {
  const auto tokenizer = Must(LoadTokenizer(PosixEnv(), kModel));
  const int32_t rare = Must(tokenizer->Encode("☃", {.add_special = false})).front();
  ChangedModel("model", [&](Tensors& t) {
    const auto table = t.at("model.embed_tokens.weight");
    t["lm_head.weight"] = table;
    for (int64_t i = 0; i < 160; ++i) {
      t["model.embed_tokens.weight"].second[static_cast<size_t>(rare * 160 + i)] = std::nanf("");
    }
  });
  Edit("model/config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 40) +
                       R"({"messages": [{"role": "user", "content": "☃?"}, {"role": "assistant", "content": "Arr."}]})"
                       "\n" +
                       FirstLines(kExample + "/pirate_train.jsonl", 4));
  const Ended ended = Temper(
      Train({"--model", "model", "--max_steps", "60", "--save_steps", "1", "--save_total_limit", "1", "--seed", "3"}));
  ExpectEnd(ended, 1,
            {"the loss is not a finite number (nan), in d.jsonl line ", "d.jsonl line 41. The run stops",
             "earlier checkpoints are good", "--learning_rate"});
  std::vector<std::string> checkpoints;
  for (const std::string& name : Must(PosixEnv().List(Path("out")))) {
    if (name.starts_with("checkpoint-")) checkpoints.push_back(name);
  }
  ASSERT_EQ(checkpoints.size(), 1u) << "the first step met the row: choose another seed";
  EXPECT_EQ(Temper({"inspect", "out/" + checkpoints[0]}).code, 0);
  EXPECT_EQ(Temper({"eval", "--model", "out/" + checkpoints[0], "--data", "e.jsonl", "--threads", "1"}).code, 0)
      << "the kept checkpoint is not good";
  ExpectEnd(Temper({"eval", "--model", "model", "--data", "d.jsonl", "--threads", "1"}), 1,
            {"the loss on the evaluation data is not a finite number (nan), in d.jsonl line", "d.jsonl line 41"});
}

TEST_F(BadInput, ADamagedCheckpointIsRefused) {
  ASSERT_EQ(Temper(Train({"--save_steps", "2"})).code, 0);
  std::string state = Slurp("out/checkpoint-4/state-00000-of-00001.safetensors");
  state[state.size() - 7] ^= 1;
  Spill("out/checkpoint-4/state-00000-of-00001.safetensors", state);
  ExpectEnd(Temper({"inspect", "out/checkpoint-4"}), 1, {"state-00000-of-00001.safetensors", "checksum"});
  const std::string result = Slurp("out/adapter_model.safetensors");
  ExpectEnd(Temper(Train({"--save_steps", "2", "--resume"})), 1, {"checksum", "Use another checkpoint"});
  EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == result) << "a refused run has lost the result";
  ExpectEnd(Temper(Train({"--save_steps", "2", "--resume=out/checkpoint-2"})), 0, {"from out/checkpoint-2"});
}

TEST_F(BadInput, ShardingRulesThatDoNotFitAreNamed) {
  const auto expect = [&](const char* rules, const std::vector<std::string>& parts) {
    for (const char* command : {"train", "plan"}) {
      Arguments run = Train({"--model", kModel, "--mesh", "fsdp=2", "--nprocs", "2", "--mesh.sharding", rules});
      run[0] = command;
      const Ended ended = Temper(run);
      EXPECT_NE(ended.code, 0) << command;
      for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    }
    EXPECT_FALSE(Has("out"));
  };
  expect(R"([["q_proj", "fspd,-"]])", {"sharding rule 1 ['q_proj', 'fspd,-']", "the closest is 'fsdp'"});
  expect(R"([["norm", "-"], ["q_proj.*weight", "fsdp"]])",
         {"sharding rule 2 ['q_proj.*weight', 'fsdp']: the spec has 1 dim"});
}

}  // namespace
}  // namespace temper::program::bad_input_test

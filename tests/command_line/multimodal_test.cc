// A multimodal folder from training to export: the text model is trained, the rest comes along.
#include "checkpoint/sliced_weights.h"
#include "format/safetensors_writer.h"
#include "temper_program.h"

namespace temper::program::multimodal_test {
namespace {

const std::string kInside = "language_model.";

// The example's model as the text model of a Mistral 3 folder, with a vision tower of two tensors.
class Multimodal : public Workplace {
 protected:
  void SetUp() override { Make(Json(true), /*own_head=*/false); }

  // `tied` as config.json says it; null: it does not.
  void Make(const Json& tied, bool own_head) {
    ASSERT_TRUE(PosixEnv().CreateFolders(Path("mm")).ok());
    for (const std::string& file : Must(PosixEnv().List(kModel))) {
      if (file.ends_with(".json")) Spill("mm/" + file, temper::Slurp(JoinPath(kModel, file)));
    }
    Json text = Json::parse(Slurp("mm/config.json"));
    for (const char* key : {"architectures", "tie_word_embeddings"}) text.erase(key);
    Json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                   {"model_type", "mistral3"},
                   {"text_config", text},
                   {"vision_config", {{"hidden_size", 8}}}};
    if (!tied.is_null()) config["tie_word_embeddings"] = tied;
    Spill("mm/config.json", config.dump(2));
    Spill("mm/preprocessor_config.json", "{\"size\": 8}");
    const ModelWeights weights = Must(OpenModelWeights(PosixEnv(), kModel));
    std::vector<TensorDeclaration> declared = {{"vision_tower.patch.weight", {DType::kF16, {3, 5}}},
                                               {"vision_tower.ids", {DType::kI64, {7}}}};
    for (const ModelWeights::Entry& e : weights.entries()) {
      declared.push_back({kInside + e.tensor->name, Must(e.tensor->type())});
    }
    if (own_head) declared.push_back({"language_model.lm_head.weight", declared[TableIn(declared)].type});
    auto writer = Must(SafetensorsWriter::Create(PosixEnv(), Path("mm/model.safetensors"), declared));
    for (const StoredTensor& t : writer.order()) {
      std::string bytes(static_cast<size_t>(t.bytes().v), '\0');
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + 1);
      const std::string inner = t.name.substr(std::min(t.name.size(), kInside.size()));
      if (t.name.starts_with(kInside) && weights.Find(inner).tensor != nullptr) bytes = BytesOf(weights, inner);
      if (t.name.find("lm_head") != std::string::npos) {  // the table's numbers, in other places
        bytes = BytesOf(weights, declared[TableIn(declared)].name.substr(kInside.size()));
        std::rotate(bytes.begin(), bytes.begin() + 64, bytes.end());
      }
      ASSERT_TRUE(writer.Append(t.name, std::as_bytes(std::span(bytes))).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }

  static size_t TableIn(const std::vector<TensorDeclaration>& tensors) {
    size_t i = 0;
    while (tensors[i].name.find("embed_tokens") == std::string::npos) ++i;
    return i;
  }
  static std::string BytesOf(const ModelWeights& weights, const std::string& name) {
    const ModelWeights::Entry entry = Must(weights.Require(name));
    std::string bytes(static_cast<size_t>(entry.tensor->bytes().v), '\0');
    TEMPER_CHECK(entry.file->ReadTensor(name, std::as_writable_bytes(std::span(bytes))).ok());
    return bytes;
  }
  // That `folder` has the tensors of the base by name, and those of the vision tower byte for byte.
  void ExpectWhole(const std::string& folder) {
    const ModelWeights base = Must(OpenModelWeights(PosixEnv(), Path("mm")));
    const ModelWeights ours = Must(OpenModelWeights(PosixEnv(), Path(folder)));
    int trained = 0;
    ASSERT_EQ(ours.entries().size(), base.entries().size());
    for (const ModelWeights::Entry& e : base.entries()) {
      const std::string& name = e.tensor->name;
      if (name.starts_with("vision")) {
        EXPECT_EQ(BytesOf(ours, name), BytesOf(base, name)) << name;
      } else {
        trained += BytesOf(ours, name) != BytesOf(base, name);
      }
    }
    EXPECT_GT(trained, 0);
    EXPECT_EQ(Slurp(folder + "/config.json"), Slurp("mm/config.json"));
    EXPECT_EQ(Slurp(folder + "/preprocessor_config.json"), Slurp("mm/preprocessor_config.json"));
  }
  Ended TrainOn(const Arguments& more) {
    Arguments all = {"--model", "mm", "--max_steps", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return Temper(Train(all));
  }
};

TEST_F(Multimodal, AnAdapterOfTheTextModelMergesIntoTheWholeFolder) {
  ExpectEnd(TrainOn({"--learning_rate", "1e-2"}), 0,
            {"the text model of Mistral3ForConditionalGeneration is used; its other 2 tensors"});
  const Json adapter = Json::parse(Slurp("out/adapter_config.json"));
  // Short names would also mean modules of the vision tower to PEFT.
  for (const Json& module : adapter["target_modules"]) {
    EXPECT_TRUE(module.get<std::string>().starts_with("model.language_model.layers.")) << module;
  }
  ExpectEnd(Temper({"export", "--model", "out", "--output_dir", "merged"}), 0,
            {"2 tensors that are not part of the text model are kept as they are"});
  ExpectWhole("merged");
  ExpectEnd(Temper({"inspect", "merged"}), 0, {});
  const auto answer = [&](const std::string& model) {
    const Ended ended = Temper({"generate", "--model", model, "--prompt", "Why is the sky blue?", "--max_new_tokens",
                                "8", "--temperature", "0", "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_EQ(answer("mm"), answer(kModel)) << "the same text model, alone";
}

// The result takes the tensors that are not trained from the base's folder.
TEST_F(Multimodal, AFullRunIsResumedOnlyOnTheBaseThatItBeganWith) {
  const Arguments full = {"--method", "full", "--learning_rate", "1e-3", "--save_steps", "1"};
  ASSERT_EQ(TrainOn(full).code, 0);
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/checkpoint-2")).ok());
  const Arguments resume = With(full, {"--resume"});
  const std::string whole = Slurp("mm/model.safetensors");
  std::string other = whole;
  const size_t tower = other.find(std::string("\x01\x08\x0f\x16", 4));  // numbers of the vision tower
  ASSERT_NE(tower, other.npos);
  other[tower] ^= 1;
  Spill("mm/model.safetensors", other);
  ExpectEnd(TrainOn(resume), 2, {"mm are not those that the training began with"});
  ASSERT_TRUE(PosixEnv().RemoveFile(Path("mm/model.safetensors")).ok());
  ExpectEnd(TrainOn(resume), 1, {"mm"});
  EXPECT_FALSE(Has("out/checkpoint-2")) << "found before a step was made";
  Spill("mm/model.safetensors", whole);
  ExpectEnd(TrainOn(resume), 0, {});
  ExpectWhole("out");
}

// As transformers decides it: by the files, where they say another thing than config.json, or it says nothing.
TEST_F(Multimodal, TheFilesDecideWhetherTheHeadIsTied) {
  const auto trained = [&](const Json& tied, bool own_head) {
    Make(tied, own_head);
    const Ended ended = Temper({"eval", "--model", "mm", "--data", "e.jsonl", "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    const bool said = ended.err.find("the files hold both, and they differ") != std::string::npos;
    EXPECT_EQ(said, own_head && tied == Json(true)) << ended.err;
    return Json::parse(ended.out)["eval_loss"].get<double>();
  };
  const double table = trained(true, false), own = trained(false, true);
  EXPECT_NE(table, own);
  EXPECT_EQ(trained(true, true), own);
  EXPECT_EQ(trained(nullptr, true), own);
  EXPECT_EQ(trained(nullptr, false), table);
}

TEST_F(Multimodal, AFullRunEndsInAWholeFolder) {
  ExpectEnd(TrainOn({"--method", "full", "--learning_rate", "1e-3"}), 0, {});
  ExpectWhole("out");
  ExpectEnd(Temper({"inspect", "out"}), 0, {});
  ExpectEnd(Temper({"export", "--model", "out", "--output_dir", "bf16", "--dtype", "bf16"}), 0, {});
  const ModelWeights base = Must(OpenModelWeights(PosixEnv(), Path("mm")));
  const ModelWeights ours = Must(OpenModelWeights(PosixEnv(), Path("bf16")));
  EXPECT_EQ(BytesOf(ours, "vision_tower.patch.weight"), BytesOf(base, "vision_tower.patch.weight"));
  // A checkpoint has no place for the rest.
  ExpectEnd(Temper({"export", "--model", "out/checkpoint-2", "--output_dir", "text"}), 0,
            {"holds the text model alone: the export lacks the rest of the multimodal model"});
}

}  // namespace
}  // namespace temper::program::multimodal_test

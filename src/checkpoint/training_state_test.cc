#include "checkpoint/training_state.h"

#include <gtest/gtest.h>

#include <map>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state_for_test.h"
#include "device/elsewhere_for_test.h"
#include "format/lora_config.h"
#include "program/buffer_names.h"

namespace temper::training_state_test {
namespace {

// Buffers as a training Program of one trainable matrix has them, and memory for each.
struct Memory {
  Memory(Role role, DType dtype, Shape shape = {3, 5}, const std::string& name = "x.weight") {
    const TensorType f32{DType::kF32, shape};
    program.buffers.push_back({name, {dtype, shape}, role, true});
    program.buffers.push_back({GradientName(name), f32, Role::kGradient});
    if (dtype != DType::kF32) program.buffers.push_back({MasterName(name), f32, Role::kOptimizerState});
    program.buffers.push_back({"adam_m:" + name, f32, Role::kOptimizerState});
    program.buffers.push_back({"adam_v:" + name, f32, Role::kOptimizerState});
    program.buffers.push_back({"frozen.weight", {dtype, {4}}, Role::kWeight});
    for (const Buffer& b : program.buffers) memory[b.name].resize(static_cast<size_t>(b.type.bytes().v));
  }
  View At(const std::string& name) {
    const int i = program.FindBuffer(name);
    return i < 0 ? View{} : View{memory[name].data(), program.buffers[static_cast<size_t>(i)].type};
  }
  BufferLookup lookup(Stream& stream = HostStream()) {
    return [this, &stream](const std::string& name) { return DevicePart(At(name), stream); };
  }
  void Fill(const std::string& name, float start) {
    for (float& x : At(name).as<float>()) x = start += 0.37f;
  }
  Status Save(const std::string& out) {
    CheckpointContents contents;
    contents.tensors = TrainingState(program, lookup());
    CheckpointWriter writer(PosixEnv(), {out, {}});
    TEMPER_RETURN_IF_ERROR(writer.Start(contents));
    return writer.Finish();
  }

  Program program;
  std::map<std::string, std::vector<std::byte>> memory;
};

// Also where a tensor is larger than the window through which memory that is not the host's is filled.
TEST(TrainingState, ComesBackBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ScratchFolder out;
    const Shape shape{3, 500'001};
    Memory saved(Role::kWeight, dtype, shape);
    saved.Fill(dtype == DType::kF32 ? "x.weight" : "master:x.weight", 1);
    saved.Fill("adam_m:x.weight", 2);
    saved.Fill("adam_v:x.weight", 3);
    if (dtype == DType::kBF16) {  // the compute copy follows from the master
      const auto weight = saved.At("x.weight").as<bf16>();
      for (size_t i = 0; i < weight.size(); ++i) weight[i] = ToBF16(saved.At("master:x.weight").as<float>()[i]);
    }
    ASSERT_TRUE(saved.Save(out.path()).ok());
    const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 0));
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ(reader->Names(), (std::vector<std::string>{"adam_m:x.weight", "adam_v:x.weight", "x.weight"}));
    for (const bool away : {false, true}) {
      Elsewhere elsewhere;
      Memory loaded(Role::kWeight, dtype, shape);
      const Status restored =
          RestoreTrainingState(*reader, loaded.program, loaded.lookup(away ? elsewhere : HostStream()));
      ASSERT_TRUE(restored.ok()) << restored.message();
      EXPECT_TRUE(loaded.memory == saved.memory) << (away ? "elsewhere" : "on the host");
      EXPECT_EQ(elsewhere.most(), static_cast<size_t>(away ? HostWindow::kBytes.v : 0));
    }
  }
}

TEST(TrainingState, HasTheStatesThatTheOptimizerKeeps) {
  Memory sgd(Role::kWeight, DType::kBF16);
  std::erase_if(sgd.program.buffers, [](const Buffer& b) { return b.name.starts_with("adam_"); });
  const auto names = [&] {
    std::vector<std::string> names;
    for (const CheckpointTensor& t : TrainingState(sgd.program, sgd.lookup())) names.push_back(t.name);
    return names;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"x.weight"}));
  sgd.program.buffers.push_back({"sgd_momentum:x.weight", {DType::kF32, {3, 5}}, Role::kOptimizerState});
  EXPECT_EQ(names(), (std::vector<std::string>{"x.weight", "sgd_momentum:x.weight"}));
  for (const char* state : {"adam_m:x", "adam_v:x", "sgd_momentum:x"}) EXPECT_FALSE(IsValueName(state)) << state;
  EXPECT_TRUE(IsValueName("x.weight"));
}

// A number of the model's files that a full run leaves as it is belongs to the model that is saved; what a run of
// adapters leaves as it is does not.
TEST(TrainingState, HasNumbersThatNoMethodTrainsWhereTheModelIsSaved) {
  const ScratchFolder out;
  const auto with_factor = [] {
    Memory m(Role::kWeight, DType::kBF16);
    m.program.buffers.push_back({"layers.0.layer_scalar", {DType::kF32, {1}}, Role::kWeight});
    m.memory["layers.0.layer_scalar"].resize(4);
    return m;
  };
  const std::vector<StoredWeight> model = {
      {"x.weight", {3, 5}, WeightSource(FileTensor{.name = "x.weight", .shape = {3, 5}})},
      {"layers.0.layer_scalar", {1}, WeightSource(FileTensor{.name = "layers.0.layer_scalar", .shape = {1}})}};
  Memory saved = with_factor();
  saved.Fill("layers.0.layer_scalar", 0.5f);
  EXPECT_EQ(TrainingState(saved.program, saved.lookup()).size(), 3u);
  CheckpointContents contents;
  contents.tensors = TrainingState(saved.program, saved.lookup(), model);
  ASSERT_EQ(contents.tensors.size(), 4u);
  EXPECT_EQ(contents.tensors.back().file, kModelWeightsFile);
  CheckpointWriter writer(PosixEnv(), {out.path(), {}});
  ASSERT_TRUE(writer.Start(contents).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 0));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Memory loaded = with_factor();
  const Status restored = RestoreTrainingState(*reader, loaded.program, loaded.lookup(), model);
  ASSERT_TRUE(restored.ok()) << restored.message();
  EXPECT_EQ(loaded.At("layers.0.layer_scalar").as<float>()[0], 0.87f);
}

TEST(TrainingState, LiesWhereHuggingFaceAndPeftLookForIt) {
  for (const Role role : {Role::kWeight, Role::kAdapter}) {
    Memory m(role, DType::kBF16);
    const auto tensors = TrainingState(m.program, m.lookup());
    ASSERT_EQ(tensors.size(), 3u);
    EXPECT_EQ(tensors[0].file, role == Role::kWeight ? kModelWeightsFile : kAdapterWeightsFile);
    EXPECT_EQ(tensors[0].part.view.data, m.At("master:x.weight").data);
    EXPECT_EQ(tensors[1].file, "state-00000-of-00001.safetensors");
  }
}

TEST(TrainingState, AnotherModelIsRefusedBeforeAnythingIsRead) {
  const ScratchFolder out;
  Memory saved(Role::kWeight, DType::kF32);
  saved.Fill("x.weight", 1);
  ASSERT_TRUE(saved.Save(out.path()).ok());
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 0));
  ASSERT_TRUE(reader.ok());
  Memory wider(Role::kWeight, DType::kF32, {3, 6}), other(Role::kWeight, DType::kF32, {3, 5}, "y.weight");
  for (Memory* m : {&wider, &other}) {
    const auto before = m->memory;
    const Status refused = RestoreTrainingState(*reader, m->program, m->lookup());
    EXPECT_FALSE(refused.ok());
    EXPECT_NE(refused.message().find("of another model"), std::string::npos) << refused.message();
    EXPECT_EQ(m->memory, before);
  }
  Program fewer = saved.program;
  fewer.buffers[0].trainable = false;
  EXPECT_FALSE(RestoreTrainingState(*reader, fewer, saved.lookup()).ok()) << "tensors nobody asks for";
}

}  // namespace
}  // namespace temper::training_state_test

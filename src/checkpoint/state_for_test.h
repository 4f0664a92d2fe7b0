// A small run's state with memory of its own.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/scratch_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"

namespace temper {

// A value that must be present (a range-for over `*List(...)` would outlive its Result).
template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void Spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Random bits (including NaNs, infinities and denormals) as training memory: two weights in one file, moments in
// another.
struct SampleState {
  explicit SampleState(int64_t step, uint64_t seed = 1, int64_t rows = 37) : step(step) {
    uint64_t x = seed * 1000003 + static_cast<uint64_t>(step);
    const auto add = [&](const std::string& name, const std::string& file, TensorType type) {
      auto& bytes = memory.emplace_back(static_cast<size_t>(type.bytes().v));
      for (std::byte& b : bytes) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        b = static_cast<std::byte>(x >> 56);
      }
      tensors.push_back({name, View{bytes.data(), type}, file, name});
    };
    for (const std::string w : {"b.weight", "a.weight"}) {
      const TensorType type{DType::kF32, {rows, 5}};
      add(w, "adapter_model.safetensors", type);
      add("adam_m:" + w, "state-00000-of-00001.safetensors", type);
      add("adam_v:" + w, "state-00000-of-00001.safetensors", type);
    }
    add("scalar", "state-00000-of-00001.safetensors", {DType::kI64, {}});
    add("empty", "state-00000-of-00001.safetensors", {DType::kBF16, {0, 3}});
  }
  SampleState(const SampleState&) = delete;

  CheckpointContents Contents() const {
    CheckpointContents c;
    c.state = {.step = step, .total_steps = 100, .sampler = {0xFFFFFFFFFFFFFFFF, 2, 7}, .tokens = step * 64};
    c.state.data_fingerprint = "0123456789abcdef";
    c.state.extra["rows"] = 12;
    c.identity = {"00000000deadbeef", {{"eval", "00000000cafe0000"}}, {{"threads", 2}}, {{"chunk", 512}}};
    c.seconds = 1.25;
    c.tensors = tensors;
    c.texts = {{"run.yaml", "seed: 42\n"}};
    return c;
  }
  CheckpointContents Evaluated(double loss) const {
    CheckpointContents c = Contents();
    c.state.eval_loss = loss;
    return c;
  }

  int64_t step;
  std::deque<std::vector<std::byte>> memory;
  std::vector<CheckpointTensor> tensors;
};

// The checkpoint has every tensor with the very bits of `state`.
inline void ExpectHolds(const std::string& folder, const SampleState& state) {
  const auto reader = CheckpointReader::Open(PosixEnv(), folder);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_EQ(reader->Names().size(), state.tensors.size());
  for (const CheckpointTensor& t : state.tensors) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.part.view.type.bytes().v), std::byte{0x5A});
    const Status loaded = reader->LoadTensor(t.name, View{bytes.data(), t.part.view.type});
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), t.part.view.raw().begin())) << t.name;
  }
}

// OK from the first to the last tensor.
inline Status VerifyAll(Env& env, const std::string& folder) {
  TEMPER_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(env, folder));
  for (const std::string& name : reader.Names()) TEMPER_RETURN_IF_ERROR(reader.VerifyTensor(name));
  return OkStatus();
}

}  // namespace temper

// One rank of a run of a tiny model, and what it loads and saves; the tensors of what was saved.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../tiny_run.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/training_state.h"

namespace temper::tiny {

class SavingRank {
 public:
  // `stored`: where the files of a model or an adapter keep the values that are trained.
  SavingRank(const RunSpec& spec, std::vector<StoredWeight> stored)
      : spec_(spec), stored_(std::move(stored)), run_(spec), lookup_([this](const std::string& name) {
          const int i = run_.train().FindBuffer(name);
          return i < 0 ? DevicePart() : run_.executor().BufferPart(i);
        }) {}

  void Load(const std::string& folder) {
    Must(LoadWeights(Must(ModelWeights::Open(PosixEnv(), folder)), stored_, lookup_));
  }
  void Save(const std::string& folder) {
    const int rank = spec_.mesh.rank, ranks = spec_.mesh.mesh.ranks();
    CheckpointContents contents{.kind = CheckpointKind::kFull};
    contents.tensors = TrainingState(run_.train(), lookup_, stored_, rank, ranks);
    CheckpointWriter writer(PosixEnv(), {.output_dir = folder, .rank = rank, .ranks = ranks});
    if (spec_.communicator != nullptr) contents.tensors = Must(OwnParts(contents.tensors, *spec_.communicator));
    Must(writer.Prepare(std::move(contents)));
    Meet();
    writer.Launch();
    Must(writer.Finish());
    Meet();
  }
  void Restore(const std::string& folder) {
    const CheckpointReader reader = Must(CheckpointReader::Open(PosixEnv(), CheckpointFolder(folder, 0)));
    std::vector<std::string> trained;  // a rank may hold no part of some of a stack's tensors
    for (const StoredWeight& w : stored_) trained.push_back(w.name);
    Must(RestoreTrainingState(reader, run_.train(), lookup_, stored_, nullptr, trained));
  }
  // The sum of the losses of each step.
  std::vector<double> Train(int steps) {
    std::vector<double> sums;
    for (int step = 0; step < steps; ++step) {
      Batch batch = run_.MakeBatch(static_cast<uint64_t>(step));
      run_.Step(batch);
      sums.push_back(run_.loss_sum());
    }
    return sums;
  }
  // Weights or adapters, and the optimizer's states.
  std::map<std::string, std::vector<std::byte>> Kept() {
    auto state = run_.State();
    std::erase_if(state, [&](const auto& named) {
      const Role role = run_.train().buffers[static_cast<size_t>(run_.train().FindBuffer(named.first))].role;
      return role != Role::kWeight && role != Role::kAdapter && role != Role::kOptimizerState;
    });
    return state;
  }

 private:
  void Meet() {
    double nothing = 0;
    if (spec_.communicator != nullptr) Must(spec_.communicator->AllReduceSum({&nothing, 1}));
  }

  const RunSpec spec_;
  const std::vector<StoredWeight> stored_;
  TinyRun run_;
  const BufferLookup lookup_;
};

struct SavedTensor {
  Shape shape;
  std::vector<float> numbers;
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};
using Tensors = std::map<std::string, SavedTensor>;

// All tensors of a checkpoint in f32.
inline Tensors TensorsOf(const std::string& folder) {
  const CheckpointReader reader = Must(CheckpointReader::Open(PosixEnv(), folder));
  Tensors tensors;
  for (const std::string& name : reader.Names()) {
    const TensorType type = reader.manifest().Find(name)->type;
    SavedTensor& saved = tensors[name];
    saved.shape = type.shape;
    saved.numbers.resize(static_cast<size_t>(type.shape.elements()));
    Must(reader.LoadTensor(name, View{reinterpret_cast<std::byte*>(saved.numbers.data()), type}));
  }
  return tensors;
}

}  // namespace temper::tiny

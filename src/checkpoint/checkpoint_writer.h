// CheckpointWriter: saves a run's state in the background, straight from the memory it lives in. States are read-only
// from one update to the next, so no snapshot is taken: Start hands the views over, training continues with the forward
// and backward of the next step, and WaitUntilRead, called before its update, returns when every byte has been handed
// to the system. Meanwhile the writer syncs, commits and deletes old checkpoints.
//
// If several ranks save together, each has a writer: it writes the slices that its rank holds, once each, into a file
// of its own, and the first rank's writer commits the folder when all are there (checkpoint/rank_fragments.h). The
// ranks meet once per save, between Prepare and Launch. The failure of a rank shows there and in their other common
// calls; the owner of the first rank's writer then destroys it to end its wait.
//
// Memory: none that grows with the state, except one tensor of an adapter that ranks share, and, where weights are on a
// device, one that files store transposed. Thread rule: one caller thread; the writer's own thread only reads the
// views. If the system refuses that thread, a single rank's Start saves before it returns.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "checkpoint/manifest.h"
#include "device/device_part.h"
#include "tensor/view.h"

namespace temper {

struct CheckpointTensor {
  // Memory must stay valid and unchanged until WaitUntilRead has returned.
  struct Rows {
    PartView part;
    Stream* stream = nullptr;  // as `stream` below
  };
  std::string name;          // in the manifest
  PartView part;             // of the tensor
  std::string file;          // its safetensors file in the folder; on several ranks one of this rank's own
  std::string stored_as;     // its name in there
  bool joined = false;       // on several ranks: `file` is one for all, which the first rank assembles
  Stream* stream = nullptr;  // through which it is read; null: Options::stream
  std::vector<Rows> more;    // what follows `part` in memory order: for a tensor that several values make up
  Shape together = {};       // of `part` and `more`, where these are not its further rows (indices of dim 0)
  bool transposed = false;   // `part` and `more` are of the tensor's transpose
  std::string kind = {};     // SlicedTensor's

  TensorType whole() const;
  // Of `part` and `more`: the box of the tensor that is stored, and where it begins.
  TensorType slice() const;
  Shape begin() const;
};

struct CheckpointContents {
  CheckpointKind kind = CheckpointKind::kLora;
  std::string optimizer = kUnsaidOptimizer;  // Manifest's
  RunState state;
  RunIdentity identity;
  double seconds = 0;                     // that the run took so far
  std::vector<CheckpointTensor> tensors;  // TrainingState (checkpoint/training_state.h) gives them
  struct TextFile {
    std::string name, text;
  };
  std::vector<TextFile> texts;  // run.yaml, adapter_config.json; of the first rank, like `copies`
  struct CopiedFile {
    std::string name, from;
  };
  std::vector<CopiedFile> copies;  // config.json and the tokenizer's (CompanionFiles)
};

// Size of the folder that these contents make, for PrepareOutputFolder.
// Tensors count whole, even if other ranks write parts of them.
Result<Bytes> CheckpointBytes(Env& env, const CheckpointContents& contents);

class CheckpointWriter {
 public:
  struct Options {
    std::string output_dir;                   // exists: PrepareOutputFolder was called
    std::optional<int64_t> save_total_limit;  // at least 1
    int rank = 0, ranks = 1;
    // For tensors outside the host's memory; only the writer's thread uses it. Outlives the writer.
    Stream* stream = &HostStream();
    // How long the first rank waits for another to be ready after itself or the rank before.
    Seconds patience{3600};
    // Called on the first rank when a checkpoint is durable, by the thread that wrote it. May be empty.
    std::function<void(const std::string& folder, int64_t step)> saved = {};
  };
  // `env` must outlive the writer.
  CheckpointWriter(Env& env, Options options);
  // Waits for a save in progress, but not for other ranks; its error is lost: call Finish before.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins a save; first waits for the previous one if it is still in progress. The commit replaces an existing
  // checkpoint of that step. Errors are sticky: that of an earlier save, too little space on the disk.
  Status Start(CheckpointContents contents);
  // Start in two steps, for several ranks. Prepare waits for the previous save; the first rank's makes room. If it was
  // OK on all ranks, each may Launch.
  Status Prepare(CheckpointContents contents);
  void Launch();
  // Returns when the views of the save in progress, if any, are no longer needed. The step's Executor::BeforeUpdate
  // calls it.
  Status WaitUntilRead();
  // Returns when the save in progress, if any, is committed and durable and old checkpoints are deleted.
  Status Finish();
  // As Finish, for `patience` at most: false if the save is still in progress then.
  bool FinishWithin(Seconds patience);

  // Of the last finished save: seconds until its views were read, and until it was durable.
  struct Timing {
    double until_read = 0, until_durable = 0;
    Bytes bytes;
  };
  // REQUIRES: no save in progress (Finish was called).
  const Timing& last_timing() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper

// CheckpointWriter: saves a run's state in the background, straight from the memory it lives in. States are read-only
// from one update to the next, so no snapshot is taken: Start hands the views over, training goes on with the forward
// and backward of the next step, and WaitUntilRead, called before its update, returns when every byte has been handed
// to the system. Syncing, the commit and the deletion of old checkpoints go on meanwhile.
//
// Where several ranks save together, each has a writer: it writes the slices that its rank holds, once each, into a
// file of its own, and the first rank's writer commits the folder when all are there (checkpoint/rank_fragments.h). The
// ranks meet once per save, between Prepare and Launch; a rank that fails or is gone is noticed there and by what else
// they do together, so that whoever owns the first rank's writer destroys it to end its wait.
//
// Memory: none that grows with the state, but one tensor of an adapter that ranks share. Thread rule: one caller
// thread; the writer's own thread only reads the views.
#pragma once

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
  std::string file;          // safetensors file of the folder that it goes to; on several ranks one of this rank's own
  std::string stored_as;     // its name in there
  bool joined = false;       // on several ranks: `file` is one for all, which the first rank puts together
  Stream* stream = nullptr;  // that it is read through; null: Options::stream
  std::vector<Rows> more;    // rows that follow those of `part`: of a tensor that several values lie in

  TensorType whole() const { return {part.view.type.dtype, part.global}; }
  // Of `part` and what follows it.
  TensorType slice() const;
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
  std::vector<TextFile> texts;  // run.yaml, adapter_config.json; of the first rank, as `copies`
  struct CopiedFile {
    std::string name, from;
  };
  std::vector<CopiedFile> copies;  // config.json and the tokenizer's (CompanionFiles)
};

// Of the folder that these contents make: what PrepareOutputFolder wants to know. Tensors count whole, whoever else
// writes parts of them.
Result<Bytes> CheckpointBytes(Env& env, const CheckpointContents& contents);

class CheckpointWriter {
 public:
  struct Options {
    std::string output_dir;                   // exists: PrepareOutputFolder was called
    std::optional<int64_t> save_total_limit;  // at least 1
    int rank = 0, ranks = 1;
    // Through which tensors that are not in the host's memory are read, by the writer's thread alone. Outlives it.
    Stream* stream = &HostStream();
    // How long the first rank waits for others to be ready after itself or the rank before.
    Seconds patience{3600};
  };
  // `env` must outlive the writer.
  CheckpointWriter(Env& env, Options options);
  // Waits for a save in progress, though not for other ranks; its error is lost: call Finish before.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins to save; first waits for the save before, if that is still in progress. A checkpoint of that step that is
  // there already is replaced, at the commit. Errors are sticky: that of an earlier save, too little space on the disk.
  Status Start(CheckpointContents contents);
  // Start in two steps, for several ranks. Prepare waits for the save before; the first rank's makes room. When it was
  // OK on all ranks, each may Launch.
  Status Prepare(CheckpointContents contents);
  void Launch();
  // Returns when the views of the save in progress, if any, are no longer needed. What RunOptions::before_update calls.
  Status WaitUntilRead();
  // Returns when the save in progress, if any, is committed and durable and old checkpoints are deleted.
  Status Finish();
  // As Finish, for `patience` at most: false where the save is still in progress then.
  bool FinishWithin(Seconds patience);

  // Of the last save that finished. Seconds until its views were read, and until it was durable.
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

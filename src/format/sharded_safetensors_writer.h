// ShardedSafetensorsWriter: writes a model's weights as Hugging Face folders hold them: model.safetensors if everything
// fits into one file, else model-00001-of-0000N.safetensors ... and model.safetensors.index.json. Data streams through,
// as with SafetensorsWriter. Deterministic.
//
// Each shard appears when it is complete, the index last. Write into a folder without weights: those of an earlier
// export are not removed. Thread rule: one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors_writer.h"

namespace temper {

class ShardedSafetensorsWriter {
 public:
  struct Options {
    // Bytes of tensor data per shard; a larger tensor gets a shard of its own. "5GB", as transformers writes it.
    Bytes max_shard = {5'000'000'000};
    std::string stem = "model";  // "adapter_model" for an adapter
    SafetensorsMetadata metadata = SafetensorsWriter::DefaultMetadata();
  };

  // Plans the shards in the order of declaration; writes nothing yet. `env` must outlive the writer.
  // kInvalidArgument for a duplicate name.
  static Result<ShardedSafetensorsWriter> Create(Env& env, const std::string& folder,
                                                 std::vector<TensorDeclaration> tensors, Options options);
  static Result<ShardedSafetensorsWriter> Create(Env& env, const std::string& folder,
                                                 std::vector<TensorDeclaration> tensors) {
    return Create(env, folder, std::move(tensors), Options());
  }

  // The order in which data must arrive: shard after shard, within each wider elements first.
  const std::vector<StoredTensor>& order() const { return order_; }
  const std::vector<std::string>& file_names() const { return names_; }  // shards, without the index
  Bytes total_size() const { return total_; }                            // of all files' tensors, headers and index
  // ChecksumHex of each shard. REQUIRES: Finish was OK.
  const std::vector<std::string>& checksums() const { return checksums_; }

  // As SafetensorsWriter.
  Status Append(std::string_view name, std::span<const std::byte> bytes);
  Status Finish();

 private:
  ShardedSafetensorsWriter(Env& env, std::string folder, Options options)
      : env_(&env), folder_(std::move(folder)), options_(std::move(options)) {}

  Status FinishShard();
  // Finishes the open shard, if any, and opens the next.
  Status NextShard();
  std::string Index() const;

  Env* env_;
  std::string folder_;
  Options options_;
  std::vector<std::vector<TensorDeclaration>> shards_;
  std::vector<std::string> names_;      // file of each shard
  std::vector<std::string> checksums_;  // of each that is finished
  std::vector<StoredTensor> order_;
  std::vector<int> shard_of_;  // of each tensor in order_
  Bytes total_, data_;
  std::optional<SafetensorsWriter> writer_;
  int open_shard_ = -1;
  size_t current_ = 0;  // index in order_
  int64_t filled_ = 0;
  Status error_;  // sticky
};

}  // namespace temper

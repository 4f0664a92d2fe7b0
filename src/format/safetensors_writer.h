// SafetensorsWriter: writes one safetensors file whose tensors are declared up front and whose data then streams
// through, piece by piece: no tensor need be in memory whole. The bytes depend only on the arguments.
//
// The file appears under its name only when Finish succeeds: until then it is PATH.tmp, which the destructor removes.
// So a reader never sees a part, and an existing file stays until it is replaced.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "format/checksum.h"
#include "format/safetensors_header.h"

namespace temper {

struct TensorDeclaration {
  std::string name;
  TensorType type;
  const StoredTensor* as = nullptr;  // not null: of its type and dims, which may be none to compute with; not `type`'s

  Bytes bytes() const { return as != nullptr ? as->bytes() : type.bytes(); }
};

class SafetensorsWriter {
 public:
  // Older versions of transformers refuse a file that lacks it.
  static SafetensorsMetadata DefaultMetadata() { return {{"format", "pt"}}; }

  // Creates the file and writes its header. `env` must outlive the writer. With kDirect the file is laid out for it:
  // the data, and each tensor of whole blocks, begin at a multiple of kDirectBlock.
  static Result<SafetensorsWriter> Create(Env& env, const std::string& path, std::vector<TensorDeclaration> tensors,
                                          SafetensorsMetadata metadata = DefaultMetadata(),
                                          WriteMode mode = WriteMode::kReplace);
  // The size of the finished file: to detect a full disk before the work.
  static Result<Bytes> FileSize(std::vector<TensorDeclaration> tensors,
                                SafetensorsMetadata metadata = DefaultMetadata(), WriteMode mode = WriteMode::kReplace);

  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // The order in which data must arrive: wider elements first, so that each is aligned in the file, otherwise as
  // declared; with kDirect tensors of whole blocks before all others.
  const std::vector<StoredTensor>& order() const { return order_; }
  // The bytes before the data, and the size of the whole file.
  const std::string& head() const { return head_; }
  Bytes file_size() const { return {std::ssize(head_) + (order_.empty() ? 0 : order_.back().end)}; }

  // From now on checksum() is kept. REQUIRES: nothing was appended.
  void KeepChecksum();
  // ChecksumHex of all bytes of the file so far.
  std::string checksum() const { return checksum_->Hex(); }

  // The next bytes of tensor `name`. REQUIRES: it is the next unfinished tensor of order() that has bytes, and is not
  // overfilled. After an error every later call returns it.
  Status Append(std::string_view name, std::span<const std::byte> bytes);
  // REQUIRES: every declared byte was appended. Syncs, closes and renames; the file is durable when this returns OK.
  Status Finish();
  // With kDirect: from now on the caller waits for Append to return.
  void Hurry() { file_->Hurry(); }

 private:
  SafetensorsWriter(Env& env, std::string path, std::vector<StoredTensor> order, std::string head)
      : env_(&env), path_(std::move(path)), order_(std::move(order)), head_(std::move(head)) {}

  Status Keep(Status status);

  Env* env_;
  std::string path_;
  std::vector<StoredTensor> order_;
  std::string head_;
  std::unique_ptr<WritableFile> file_;  // null once finished or moved from
  size_t current_ = 0;                  // index in order_
  int64_t filled_ = 0;                  // bytes of it that are written
  std::optional<Checksum> checksum_;
  Status error_;  // sticky
};

// The tensors as they will be stored in a file: order and offsets.
std::vector<StoredTensor> LayOutTensors(std::vector<TensorDeclaration> tensors, WriteMode mode = WriteMode::kReplace);

}  // namespace temper

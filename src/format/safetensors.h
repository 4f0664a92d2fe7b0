// SafetensorsFile: a safetensors file opened for reading. Opening reads and verifies the whole header (it costs the
// header's size, not the file's). Data is read by pread into the caller's memory, never mapped: a file that vanishes or
// shrinks is an error, not a signal.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "format/safetensors_header.h"

namespace temper {

class SafetensorsFile {
 public:
  // Staging memory of a converting read if the caller gives none: small enough to stay in a core's L2 cache, so that
  // the converted bytes are read from there.
  static constexpr int64_t kStagingBytes = 256 << 10;

  // Errors: kNotFound; kCorrupt (truncated, contradictory, overlapping, ...); kUnsupported if the file is of another
  // kind (a pickle, which could run code; GGUF; a Git LFS pointer). `env` need not outlive the result.
  static Result<SafetensorsFile> Open(Env& env, const std::string& path);

  const std::string& path() const { return file_->path(); }
  Bytes size() const { return file_->size(); }
  FileVersion version() const { return file_->version(); }  // of the file whose header was read
  int64_t data_begin() const { return data_begin_; }        // of byte 0 of the data, from the file's start
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }  // in the order of their data
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  const StoredTensor* Find(std::string_view name) const;             // nullptr where absent
  Result<const StoredTensor*> Require(std::string_view name) const;  // kNotFound where absent

  // The tensor's stored bytes. `out` must have exactly its size.
  Status ReadTensor(std::string_view name, std::span<std::byte> out) const;
  // Bytes [begin, begin + out.size()) of the tensor.
  Status ReadRange(std::string_view name, int64_t begin, std::span<std::byte> out) const;

  // The whole tensor converted to `target`; `out` must have exactly elements * SizeOf(target) bytes. Both types
  // floating, or equal. `staging` (at least 64 bytes, aligned to 8) is used if types differ; without it the call
  // allocates.
  Status ReadAs(std::string_view name, DType target, std::span<std::byte> out, std::span<std::byte> staging = {}) const;
  // As ReadAs, for the out.size() / SizeOf(target) elements from `first` on: rows r.. of an [R, C] tensor are first = r
  // * C.
  Status ReadElementsAs(std::string_view name, int64_t first, DType target, std::span<std::byte> out,
                        std::span<std::byte> staging = {}) const;

 private:
  SafetensorsFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header);

  std::unique_ptr<RandomAccessFile> file_;
  int64_t data_begin_;
  SafetensorsHeader header_;
  std::vector<int32_t> by_name_;  // indices of tensors(), sorted by name
};

}  // namespace temper

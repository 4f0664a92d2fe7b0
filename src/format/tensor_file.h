// TensorFile: a file of named tensors, opened for reading: safetensors, or what torch.save wrote. OpenTensorFile
// (format/open_tensor_file.h) opens one, whichever it is. Opening reads and verifies what describes the tensors, not
// their data. Data is read by pread into the caller's memory, never mapped: a file that vanishes or shrinks is an
// error, not a signal.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "format/safetensors_header.h"

namespace temper {

class TensorFile {
 public:
  // Staging memory of a converting read if the caller gives none: small enough to stay in a core's L2 cache, so that
  // the converted bytes are read from there.
  static constexpr int64_t kStagingBytes = 256 << 10;

  virtual ~TensorFile() = default;

  virtual std::string_view kind() const = 0;  // "safetensors", "PyTorch"
  const std::string& path() const { return file_->path(); }
  Bytes size() const { return file_->size(); }
  FileVersion version() const { return file_->version(); }  // of the file whose description was read
  int64_t data_begin() const { return data_begin_; }        // what the tensors' begin and end count from, in the file
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }  // in the order of their data
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  const StoredTensor* Find(std::string_view name) const;             // nullptr where absent
  Result<const StoredTensor*> Require(std::string_view name) const;  // kNotFound where absent

  // Where the tensor's elements lie in the file, row-major and one after the other; nullopt: they lie otherwise.
  std::optional<int64_t> PlaceOf(std::string_view name) const;

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

 protected:
  TensorFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header);
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;

  const RandomAccessFile& file() const { return *file_; }
  size_t IndexOf(const StoredTensor& t) const { return static_cast<size_t>(&t - header_.tensors.data()); }

 private:
  // Bytes [begin, begin + out.size()) of `t`, one of tensors(), were they row-major and one after the other.
  virtual Status ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const;
  // Whether they are that, from t.begin on.
  virtual bool IsInPlace(const StoredTensor&) const { return true; }

  std::unique_ptr<RandomAccessFile> file_;
  int64_t data_begin_;
  SafetensorsHeader header_;
  std::vector<int32_t> by_name_;  // indices of tensors(), sorted by name
};

}  // namespace temper

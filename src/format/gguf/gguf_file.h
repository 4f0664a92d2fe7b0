// GgufFile: the tensors of a GGUF file under the file's names. Quantised ones are read as the numbers that they stand
// for, in f32: their blocks are decoded as they are read (block_decoders.h).
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf/gguf_header.h"
#include "format/tensor_file.h"
#include "tensor/block_decoders.h"

namespace temper {

class GgufFile final : public TensorFile {
 public:
  // Errors: kNotFound; kCorrupt (truncated, contradictory, overlapping tensors); kUnsupported (types of blocks that are
  // not decoded, by name). `env` need not outlive the result.
  static Result<GgufFile> Open(Env& env, const std::string& path);

  std::string_view kind() const override { return "GGUF"; }
  const GgufMetadata& keys() const { return keys_; }
  // The type of the blocks of `t`, one of tensors(); nullptr: it is stored as numbers.
  const BlockDecoder* BlocksOf(const StoredTensor& t) const { return places_[IndexOf(t)].decoder; }
  // Bytes [begin, begin + out.size()) of its blocks, as they are stored. REQUIRES: it has some.
  Status ReadBlocks(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const {
    return file().ReadAt(places_[IndexOf(t)].begin + begin, out);
  }

 private:
  struct Place {
    int64_t begin = 0;  // in the file
    const BlockDecoder* decoder = nullptr;
  };

  GgufFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header, GgufMetadata keys,
           std::vector<Place> places);

  Status ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const override;
  bool IsInPlace(const StoredTensor& t) const override { return BlocksOf(t) == nullptr; }

  GgufMetadata keys_;
  std::vector<Place> places_;  // of tensors()
};

}  // namespace temper

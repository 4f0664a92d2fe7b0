// SafetensorsFile: a safetensors file opened for reading. Opening reads and verifies the whole header (it costs the
// header's size, not the file's).
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "format/tensor_file.h"

namespace temper {

class SafetensorsFile final : public TensorFile {
 public:
  // Errors: kNotFound; kCorrupt (truncated, contradictory, overlapping, ...); kUnsupported if the file is of another
  // kind (a pickle; GGUF; a Git LFS pointer). `env` need not outlive the result.
  static Result<SafetensorsFile> Open(Env& env, const std::string& path);

  std::string_view kind() const override { return "safetensors"; }

 private:
  SafetensorsFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header);
};

}  // namespace temper

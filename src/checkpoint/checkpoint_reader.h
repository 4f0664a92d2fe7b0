// CheckpointReader: a committed checkpoint folder, opened and checked: the manifest against itself, every file against
// its size and checksum, every safetensors header against the manifest. Tensor data is checked as it is read.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "checkpoint/manifest.h"
#include "checkpoint/slices.h"
#include "format/safetensors.h"
#include "tensor/view.h"

namespace temper {

class CheckpointReader {
 public:
  // Errors: kNotFound (no such folder, no manifest: an interrupted save; a file of the manifest is missing), kCorrupt
  // (truncated, changed), kUnsupported (another version). `env` must outlive the reader.
  static Result<CheckpointReader> Open(Env& env, const std::string& folder);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  std::vector<std::string> Names() const;  // of the tensors, sorted
  bool Has(std::string_view name) const { return manifest_.Find(name) != nullptr; }

  // Fills `part`, which must be of a tensor of this type: all of it, or any box. However the tensor was cut, only
  // slices that overlap the part are read. kCorrupt, naming tensor and file, if a checksum differs; the part's memory
  // is then undefined.
  Status LoadTensor(const std::string& name, const PartView& part) const;
  // The same for a part outside the host's memory, which `put` writes. `whole`: the required type.
  Status LoadTensor(const std::string& name, const TensorType& whole, const Box& part, const PutBytes& put) const;
  // The same without keeping the data: bounded memory.
  Status VerifyTensor(const std::string& name) const;

  // A text file of the folder, checked: "run.yaml".
  Result<std::string> ReadText(const std::string& file) const;

 private:
  CheckpointReader(Env& env, std::string path, Manifest manifest)
      : env_(&env), path_(std::move(path)), manifest_(std::move(manifest)) {}
  Status CheckFiles();
  Status CheckTensors();
  Result<const Manifest::Tensor*> TensorOf(const std::string& name, const TensorType& wanted) const;
  const SafetensorsFile& FileOf(const std::string& name) const;
  SliceFiles Files() const {
    return [this](const std::string& file) -> const SafetensorsFile& { return FileOf(file); };
  }

  Env* env_;
  std::string path_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // those with tensors, in the manifest's order
};

}  // namespace temper

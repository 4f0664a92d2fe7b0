// A PEFT LoRA adapter folder: adapter_config.json and adapter_model.safetensors, as PEFT writes and loads them.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load_weights.h"
#include "format/lora_config.h"
#include "format/lora_module.h"
#include "format/model_weights.h"
#include "format/trained_copy.h"
#include "format/trained_rows.h"
#include "tensor/view.h"

namespace temper {

// Writes the folder from f32 views (named as in the file), adapter_config.json last; each file is synced and renamed,
// so a reader sees the old one or the new one. Creates the folder.
struct NamedView {
  std::string name;
  View view;
};
Status WriteAdapter(Env& env, const std::string& folder, const LoraConfig& config, std::span<const NamedView> tensors);

// An adapter, opened and verified to be exactly that of `modules`, `copies` and `rows`: every A and B, every weight and
// every table's rows that were trained in full are there, with the right shape and a floating dtype, and nothing else
// (except the frozen weight that PEFT stores beside an adapted head).
class AdapterReader {
 public:
  static Result<AdapterReader> Open(Env& env, const std::string& folder, std::span<const LoraModule> modules,
                                    std::span<const TrainedCopy> copies = {}, std::span<const TrainedRows> rows = {});

  // Fills the buffer of each A, B, copy and trained row, and of its master if `buffer` has one, converting. Skips
  // buffers that `buffer` does not have.
  Status Load(const BufferLookup& buffer) const;
  // One tensor, named by its module's path of today, converted to f32. REQUIRES: it is of a module given to Open; out
  // has its element count.
  Status Read(const std::string& name, std::span<float> out) const;
  // The numbers of trained rows, in f32. REQUIRES: they were given to Open.
  Status ReadRows(const TrainedRows& rows, std::span<float> out) const;
  // Of a copy's tensor in the file. REQUIRES: it is of a copy given to Open.
  ModelWeights::Entry Find(const TrainedCopy& copy) const;

 private:
  AdapterReader(ModelWeights files, std::vector<LoraModule> modules, std::vector<StoredWeight> copies,
                std::map<std::string, std::string> stored_as)
      : files_(std::move(files)),
        modules_(std::move(modules)),
        copies_(std::move(copies)),
        stored_as_(std::move(stored_as)) {}
  ModelWeights files_;
  std::vector<LoraModule> modules_;
  std::vector<StoredWeight> copies_;
  std::map<std::string, std::string> stored_as_;  // by the tensor's name of today's module, that in the file
};

}  // namespace temper

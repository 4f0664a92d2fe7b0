// `temper export`: writes a model as a Hugging Face folder that transformers loads. The adapter, if any, is merged:
// W + scale * B A in f32 with one rounding. Weights stream through in pieces of rows; memory is bounded by the adapter
// of one module and a few MiB.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/adapter.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/model_source.h"

namespace temper {

struct ExportSpec {
  ModelSource source;
  std::vector<FileTensor> tensors;   // of the model's files, which hold its weights
  std::vector<std::string> ignored;  // ends of names of tensors that are left out without a word
  // The output head: its module, and the tensor that it multiplies with. If that is the tensor of another module, the
  // head is tied to it, and config.json says so under the JSON pointers `tied_keys`.
  std::string head, head_tensor;
  std::vector<std::string> tied_keys;
  std::vector<LoraModule> modules;  // of source.adapter_folder
  // By the path of a module, the adapted ones' and the head's: names of its weight in files, the one it is written
  // under first.
  std::map<std::string, std::vector<std::string>> tensors_of;
  bool keeps_others = false;  // tensors that are none of `tensors` are part of the model: exported byte for byte
  std::string output_dir;
  std::optional<DType> dtype;  // bf16, f16 or f32; default: as stored, for a full checkpoint as its config.json says
  bool overwrite = false;      // else output_dir must be missing or empty; one with a run or an adapter is refused
  Bytes max_shard = {5'000'000'000};
  // Companion files, by name, that are written with another text, or left out where there is none.
  std::map<std::string, std::optional<std::string>> replaced;
};

struct ExportReport {
  std::vector<std::string> files;  // names, in the order they were written
  Bytes bytes;                     // of the weights
  int64_t tensors = 0, merged = 0;
  std::vector<std::string> notices;  // untied embeddings, tensors left out or kept
};

// config.json is written last: an interrupted export is not a model folder. All other files beside the weights are
// copied byte for byte, but for those replaced; config.json too, unless the dtype or the tying of the embeddings
// changes.
Result<ExportReport> ExportModel(Env& env, const ExportSpec& spec,
                                 const std::function<void(Bytes done, Bytes total)>& progress = nullptr);

}  // namespace temper

// ExportSpec: what an export writes, in whatever format: a model's files, with an adapter merged or without.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/adapter.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/model_source.h"

namespace temper {

struct ExportSpec {
  ModelSource source;
  std::vector<FileTensor> tensors;   // of the model's files, which hold its weights
  std::vector<std::string> ignored;  // name endings of tensors that are left out silently
  // The output head: its module, and the tensor that it multiplies with. If that is the tensor of another module, the
  // head is tied to it, and config.json says so under the JSON pointers `tied_keys`.
  std::string head, head_tensor;
  std::vector<std::string> tied_keys;
  std::vector<LoraModule> modules;  // of source.adapter_folder
  std::vector<TrainedCopy> copies;  // as well: they take the place of the model's
  std::vector<TrainedRows> rows;    // as these do of the tables'
  // For the adapted modules and the head, by path: names of the weight in files. The first is the one it is written
  // under. Of stacks: the tensors of all matrices of one part after the other.
  std::map<std::string, std::vector<std::string>> tensors_of;
  // By the tensors of linear modules and experts: the module that transformers makes of them, as quantization_config
  // names it.
  std::map<std::string, std::string> modules_of;
  std::optional<std::string> config;  // the text of config.json, if it is not the model folder's
  bool adds_head = false;             // the model's files lack head_tensor, which only the adapter has
  bool keeps_others = false;          // tensors outside `tensors` belong to the model, too: exported byte for byte
  std::string output_dir;
  std::optional<DType> dtype;  // bf16, f16 or f32; default: as stored, for a full checkpoint as its config.json says
  bool overwrite = false;      // else output_dir must be missing or empty; one with a run or an adapter is refused
  Bytes max_shard = {5'000'000'000};
  // Words of the model's tables after rows for new ones were added (checkpoint/mean_rows.h); 0: as the files have them.
  // `tables`: the tensors that have a row for each word, by FileTensor::name. REQUIRES: no adapter.
  int64_t words = 0;
  std::vector<std::string> tables;
  std::string words_key;  // JSON pointer to their number in config.json
  // Companion files, by name, that get another text (also those that model_folder lacks), or are left out (nullopt).
  std::map<std::string, std::optional<std::string>> replaced;
};

struct ExportReport {
  std::vector<std::string> files;  // names, in the order they were written
  Bytes bytes;                     // of the weights
  int64_t tensors = 0, merged = 0;
  std::vector<std::string> notices;  // untied embeddings, tensors left out or kept
};

}  // namespace temper

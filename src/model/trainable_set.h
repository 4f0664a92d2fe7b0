// TrainableSet: what of a model is trained: every weight, or adapters and, beside them, some modules in full. All that
// a run does differently for one or the other follows from it: forward graphs (model/adapted_model.h), the tensors of
// checkpoints, the work of a step.
#pragma once

#include <string>
#include <vector>

#include "format/lora_config.h"
#include "format/lora_module.h"
#include "format/trained_copy.h"
#include "format/trained_rows.h"
#include "graph/graph.h"
#include "model/model.h"

namespace temper {

struct TrainableSet {
  bool all_weights = false;
  // REQUIRES: these are empty if all weights are trained.
  std::vector<LoraModule> adapters;
  std::vector<TrainedCopy> copies;
  std::vector<TrainedRows> rows;

  int64_t Parameters(const Model& model) const;
  // Elements of copies that activations are multiplied by: each costs a third multiplication, for its gradient.
  int64_t CopiesInProducts() const;
  // The paths of the modules that are trained in full, in their order.
  std::vector<std::string> CopiedModules() const;
  // Where files have what is trained: a model's, or an adapter's.
  std::vector<StoredWeight> Stored(const Model& model) const;
};

// What `config` selects of a model: its adapters (ResolveLora), copies of the modules that modules_to_save names, and
// the rows of trainable_token_indices. Errors: as ResolveLora; names of no module or of a group of modules; rows that
// the table has not. `file`: as there.
Result<TrainableSet> ResolveTrainable(const Model& model, const LoraConfig& config, const std::string& file = "");

// What a user should hear of a head that is tied to the embeddings, and of a setting that keeps it so and has no
// effect;
// "": nothing.
std::string NoteOnTies(const LoraConfig& config, const TrainableSet& set);

// Readers of the weights in `copies` read the copies. `training`: these are trained.
void ReadCopies(const std::vector<TrainedCopy>& copies, bool training, Graph* graph);

// The weights of the model's files and, under the names of their copies, again: how copies begin.
std::vector<StoredWeight> StoredWeightsAndCopies(const Model& model);

}  // namespace temper

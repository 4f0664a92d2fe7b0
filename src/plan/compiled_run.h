// A training run compiled: the same function serves `temper plan` and `temper train`, so the plan is the run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compile/memory/machine_room.h"
#include "compile/train_step.h"
#include "config/run_config.h"
#include "graph/model_work.h"
#include "model/lora.h"
#include "model/model.h"
#include "plan/report.h"
#include "program/program.h"

namespace temper {

struct CompiledRun {
  MeshSpec mesh;                    // with the blocks of each stage, where there are several
  std::vector<LoraModule> targets;  // empty for full fine-tuning
  std::vector<Program> programs;    // "train", "eval"
  std::vector<Decision> decisions;  // made by cost
  std::string mesh_note;            // what a user may not expect of his mesh and rules; may be empty
  ChosenMemory memory;              // text "": everything lies on the device
  // Of a run that got the limits of its machine: why, and the hash of the Program that it would be without them. Homes
  // change no bit of a result, so two runs that differ in them alone are the same.
  std::string limited_because;
  std::optional<uint64_t> hash_without_limits;
  std::vector<std::string> trained;   // names of all trainable values, of which a stage of a pipeline has its own
  std::vector<std::string> distinct;  // weights and adapters of one block of each kind, and of none
  std::vector<StoredWeight> stored;   // where these lie in a model's or an adapter's files
  int64_t parameters = 0, trainable_parameters = 0;
  ModelWork work;  // of a token, all blocks and the head

  const Program& train() const { return programs[0]; }
  const Program& eval() const { return programs[1]; }
  std::optional<PipelineFacts> pipeline;  // where there are stages
  std::string MemoryText() const;         // what lives in which tier, and why; "": everything on the device
  // Ranks that have rows of their own, and this one's number among them.
  int64_t data_ranks() const { return mesh.mesh.size(DataAxes(mesh.mesh)); }
  int64_t data_rank() const { return mesh.mesh.IndexIn(DataAxes(mesh.mesh), mesh.rank); }
  // Arithmetic that the model requires for a step (not counting recomputation): 6N (full) or 4N (LoRA) per token, N
  // the weights it is multiplied with, plus `attention`: AttentionFlops of all documents. What MFU is counted by.
  Flops ModelFlops(int64_t tokens, Flops attention) const;
  // Forward and backward, of one document.
  Flops AttentionFlops(int64_t tokens) const;
};

DType ComputeDType(const RunConfig& config);
MemorySpec MemorySpecOf(const RunConfig& config);
UpdateSpec UpdateSpecOf(const RunConfig::Optimizer& optimizer);

// REQUIRES: `config` is resolved. `rank` of `ranks`. `kept`: decisions of the run that this one goes on from. `memory`:
// limits and rates of another machine; nullptr: what `config` says.
Result<CompiledRun> CompileRun(const Model& model, const RunConfig& config, int ranks = 1, int rank = 0,
                               const KeptDecisions& kept = {}, const MemorySpec* memory = nullptr);

// CompileRun for this machine: a run that `config` sets no limits, and that takes more than `available`, gets the
// machine's (compile/memory/machine_room.h); what memory does not hold is read from the model's files or kept on the
// disk. Each stage of a pipeline has its own need and its own limits. What `config` has on a GPU whose memory is not
// known is compiled as it is.
Result<CompiledRun> CompileWithin(const RankMemory& available, const Model& model, const RunConfig& config,
                                  int ranks = 1, int rank = 0, const KeptDecisions& kept = {});

// What `compile` makes of the first rank of each stage; of rank 0 where there is one.
Result<std::vector<CompiledRun>> CompileStages(int ranks, const std::function<Result<CompiledRun>(int rank)>& compile);
// CompileWithin of each of these, where `available` has no GPU's memory.
Result<std::vector<CompiledRun>> CompileStagesWithin(const RankMemory& available, const Model& model,
                                                     const RunConfig& config, int ranks);

// A line for each setting of LoRA that changes nothing on this model.
Result<std::vector<std::string>> IdleSettings(const Model& model, const RunConfig& config);

// The training forward pass of one device with its adapters: what the mesh splits (DrawSharding).
Result<Graph> AdaptedForward(const Model& model, const RunConfig& config);

}  // namespace temper

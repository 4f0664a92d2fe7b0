// CompiledRun: the Programs of a run on one rank, and all that is known of it before a weight is read. `temper plan`
// and `temper train` compile in the same way (compile/run/compile_run.h), so the plan is the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/run/pipeline_facts.h"
#include "compile/run/row_lengths.h"
#include "compile/run/run_rates.h"
#include "compile/train_step.h"
#include "graph/model_work.h"
#include "model/model.h"
#include "model/trainable_set.h"
#include "program/program_set.h"
#include "settings/run_config.h"

namespace temper {

struct CompiledRun {
  MeshSpec mesh;                    // with the blocks of each stage, if there are several
  TrainableSet trains;              // what of the model
  ProgramSet programs;              // of the objective's graphs: "train", "eval", perhaps "reference"; "train.512"
  RowLengths lengths;               // of the rows of the Programs with shorter ones
  std::vector<Decision> decisions;  // made by cost
  std::string mesh_note;            // a note on unexpected effects of the user's mesh and rules; may be empty
  ChosenMemory memory;              // text "": everything is on the device
  std::string rates;                // where the rates that it was chosen by come from; empty: no choice needed any
  std::string limited_because;      // if the run got the limits of its machine: the reason
  Status room;                      // OutOfMemory: options place values where they do not fit (CheckRoom)
  // Bytes of second layouts of frozen weights (compile/memory/pack_weights.h) and of packed copies of trained ones
  // (pack_operands.h); nullopt: none are packed.
  std::optional<Bytes> packed;
  // Hashes of the Programs without limits, casts and packing of weights, if CompileWithin set limits, or weights are
  // cast or packed. That changes no bit of a result, so two runs that differ only in it count as the same.
  std::optional<ProgramHashes> hashes_without_limits;
  std::vector<std::string> trained;   // names of all values that are saved; a stage of a pipeline has only some of them
  std::vector<std::string> distinct;  // weights and adapters of one block of each kind, and those outside of blocks
  std::vector<StoredWeight> stored;   // the tensors of what is trained in a model's or an adapter's files
  int64_t parameters = 0, active_parameters = 0, trainable_parameters = 0;
  int64_t trained_in_products = 0;  // of the weights that work counts, those that are trained themselves
  bool counts_experts = false;      // the training Program says what tokens ask of experts
  double router_aux_loss_coef = 0;  // of the loss that balances experts; 0: there is none
  ModelWork work;                   // per token, over all blocks and the head
  // Of the model that this one learns from; 0: none. It has a forward pass alone.
  int64_t teacher_parameters = 0;
  ModelWork teacher_work;

  const Program& train() const { return programs.first(); }
  // What a run that goes on from a checkpoint must have alike to give the same bits.
  ProgramHashes Hashes() const { return hashes_without_limits ? *hashes_without_limits : HashesOf(programs); }
  std::optional<PipelineFacts> pipeline;  // if there are stages
  std::string MemoryText() const;         // the tiers of values, and why, or that weights are packed; "": neither
  // The number of ranks with different rows, and this rank's index among them.
  int64_t data_ranks() const { return mesh.mesh.size(DataAxes(mesh.mesh)); }
  int64_t data_rank() const { return mesh.mesh.IndexIn(DataAxes(mesh.mesh), mesh.rank); }
  // Arithmetic that the model requires for a step (not counting recomputation): 6N (full) or 4N (LoRA; 6 for those that
  // are trained in full beside it) per token, N the weights in its products, and 2M of a teacher, plus `attention`:
  // AttentionFlops of all documents. The basis of MFU.
  Flops ModelFlops(int64_t tokens, Flops attention) const;
  // FLOPs of attention for one document, forward and backward.
  Flops AttentionFlops(int64_t tokens) const;
};

DType ComputeDType(const RunConfig& config);
MemorySpec MemorySpecOf(const RunConfig& config);
UpdateSpec UpdateSpecOf(const RunConfig::Optimizer& optimizer);

// A line for each setting of LoRA or of a group without effect on this model, and on a head that copies leave.
Result<std::vector<std::string>> IdleSettings(const Model& model, const RunConfig& config);

}  // namespace temper

// What of a training Program's memory a checkpoint holds, and how it comes back: for every tensor X of the model's
// files that trainable values lie in, their f32 numbers (the master copy, or the value itself where training computes
// in f32) under X's name, and what the optimizer keeps of them, as its rule names it (graph/update_rule.h): adam_m:X,
// adam_v:X.
//
// Where they lie: weights of a full run in model.safetensors and adapters in adapter_model.safetensors, so that every
// checkpoint folder is also a Hugging Face model or a PEFT adapter; states in state-00000-of-00001.safetensors. On
// several ranks each writes its parts of weights and states to a file of its own, state-00001-of-00004.safetensors;
// adapters are put together, so that the folder is a PEFT adapter there, too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load_weights.h"
#include "device/communicator.h"
#include "format/weight_source.h"
#include "program/program.h"

namespace temper {

inline constexpr char kModelWeightsFile[] = "model.safetensors";
inline constexpr char kRunConfigFile[] = "run.yaml";

// `program` is the "train" Program; `buffer` gives its memory (Executor::BufferPart(program.FindBuffer(name))).
// With `buffer` giving parts without memory it still says what will be saved (CheckpointBytes). `weights`: where values
// lie in the model's files; what is not among them is all of a tensor of its own name. Tensors are those of the files,
// so that what is saved has the layout of what was loaded.
std::vector<CheckpointTensor> TrainingState(const Program& program, const BufferLookup& buffer,
                                            std::span<const StoredWeight> weights = {}, int rank = 0, int ranks = 1);
// The value itself, not an optimizer's state.
bool IsValueName(const std::string& name);

// Those that this rank is to write: of parts that several ranks hold, the lowest of them. All ranks call this at the
// same place.
Result<std::vector<CheckpointTensor>> OwnParts(std::vector<CheckpointTensor> tensors, Communicator& communicator);

// Fills masters, states and the compute copies (the master rounded once, as the update does) of every trainable value.
// Where the values are split among ranks, only the parts that lie in `buffer` are filled, however the checkpoint's run
// had split them. All names and shapes are checked before the first byte is read: a tensor that is missing, unexpected
// or of another shape is an error that says that the checkpoint is of another model or configuration. `trained`: names
// of all values that the run trains, where this rank lacks some (stages of a pipeline). `progress` as in LoadWeights.
// Memory beside `buffer`: two windows (device/device_part.h).
Status RestoreTrainingState(const CheckpointReader& checkpoint, const Program& program, const BufferLookup& buffer,
                            std::span<const StoredWeight> weights = {},
                            const std::function<void(Bytes, Bytes)>& progress = nullptr,
                            const std::vector<std::string>& trained = {});

}  // namespace temper

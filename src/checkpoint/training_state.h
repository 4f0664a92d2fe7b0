// Which memory of a training Program a checkpoint holds, and how it is restored: for every tensor X of the model's
// files that holds trainable values (or, in a full run, numbers that no method trains), their f32 numbers (the master
// copy, or the value itself if training computes in f32) under X's name, and the optimizer's states, as its rule names
// them (graph/update_rule.h): adam_m:X, adam_v:X.
//
// In the folder: weights of a full run in model.safetensors and adapters in adapter_model.safetensors, so that every
// checkpoint folder is also a Hugging Face model or a PEFT adapter; states in state-00000-of-00001.safetensors. With
// several ranks each writes its parts of weights and states to a file of its own, state-00001-of-00004.safetensors;
// adapters are assembled, so that the folder is a PEFT adapter there, too.
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

// `program` is the "train" Program; `buffer` gives its memory (Executor::BufferPart(program.FindBuffer(name))). If
// `buffer` gives parts without memory it still says what will be saved (CheckpointBytes). `weights`: where values are
// stored in the model's files; any other value is all of a tensor of its own name. Tensors are those of the files, so
// that a saved model has the layout of the loaded one. Of several ranks: the parts of values as they lie on this one;
// OwnParts makes of them what it writes.
std::vector<CheckpointTensor> TrainingState(const Program& program, const BufferLookup& buffer,
                                            std::span<const StoredWeight> weights = {}, int rank = 0, int ranks = 1);
// The value itself, not an optimizer's state.
bool IsValueName(const std::string& name);

// What this rank writes: of parts that several ranks hold, the lowest rank's, and then rows of one tensor that follow
// each other as one slice. Not the other way round: the rows of a fused tensor's values may be split over ranks in one
// of them and copies in the next. All ranks call this at the same place.
Result<std::vector<CheckpointTensor>> OwnParts(std::vector<CheckpointTensor> parts, Communicator& communicator);
// Only the second of these, for parts of which no other rank writes any.
std::vector<CheckpointTensor> SlicesOf(std::vector<CheckpointTensor> parts);

// Fills masters, states and the compute copies (the master rounded once, as the update does) of every trainable value.
// If the values are split among ranks, it fills only the parts that lie in `buffer`, however the checkpoint's run had
// split them. It checks all names and shapes before it reads the first byte: a missing or unexpected tensor, or one of
// another shape, is an error that says that the checkpoint is of another model or configuration. `trained`: names of
// all values that the run trains, if this rank lacks some (stages of a pipeline). `progress` as in LoadWeights. Memory
// beside `buffer`: two windows (device/device_part.h), and twice what this rank holds of one tensor that files have
// transposed.
Status RestoreTrainingState(const CheckpointReader& checkpoint, const Program& program, const BufferLookup& buffer,
                            std::span<const StoredWeight> weights = {},
                            const std::function<void(Bytes, Bytes)>& progress = nullptr,
                            const std::vector<std::string>& trained = {});

}  // namespace temper

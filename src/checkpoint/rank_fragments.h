// How the ranks that write one checkpoint together meet: only in its staging folder, because their writers run in the
// background, where no communicator may be used. Each rank writes a file of its own with its slices and then, when that
// is durable, rank-00001.json, which describes it. The first rank waits for all of these, makes the manifest from them
// and removes them.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "checkpoint/manifest.h"

namespace temper {

// Where a rank writes its part of `file`, which the first rank assembles: "rank-00001.adapter_model.safetensors".
std::string PartFile(const std::string& file, int rank);

// REQUIRES: the files that it names are durable.
Status PublishFragment(Env& env, const std::string& staging, int rank, const ManifestFragment& fragment);

// Those of ranks 1 to ranks - 1, as they come. kInterrupted when `cancelled` is set; kIo if no rank has been ready for
// `patience`, naming those that are missing.
Result<std::vector<ManifestFragment>> AwaitFragments(Env& env, const std::string& staging, int ranks, Seconds patience,
                                                     const std::atomic<bool>& cancelled);

// Merges the slices of each tensor and verifies that they cover it. kCorrupt if ranks disagree on a tensor.
Status AddFragments(const std::vector<ManifestFragment>& fragments, const std::string& staging, Manifest* manifest);

// Assembles files of which ranks wrote parts: their tensors
// become whole. Durable when it returns OK. Memory: one tensor.
Status JoinParts(Env& env, const std::string& staging, Manifest* manifest);

// Removes the files that only served to make the manifest.
Status RemoveFragments(Env& env, const std::string& staging);

}  // namespace temper

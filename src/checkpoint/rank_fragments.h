// How the ranks that write one checkpoint together meet, in its staging folder and nowhere else: their writers run in
// the background, where no communicator may be used. Each rank writes a file of its own with its slices and then, when
// that is durable, rank-00001.json, which says what is in it. The first rank waits for all of these, makes the manifest
// of them and removes them.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "checkpoint/manifest.h"

namespace temper {

// Where a rank writes its part of `file`, which the first rank puts together: "rank-00001.adapter_model.safetensors".
std::string PartFile(const std::string& file, int rank);

// REQUIRES: the files that it names are durable.
Status PublishFragment(Env& env, const std::string& staging, int rank, const ManifestFragment& fragment);

// Those of ranks 1 to ranks - 1, as they come. kInterrupted when `cancelled` is set; kIo where no rank has been ready
// for `patience`, naming those that are missing.
Result<std::vector<ManifestFragment>> AwaitFragments(Env& env, const std::string& staging, int ranks, Seconds patience,
                                                     const std::atomic<bool>& cancelled);

// The slices of each tensor under one roof, and then proved to be all of it. kCorrupt where ranks disagree on a tensor.
Status AddFragments(const std::vector<ManifestFragment>& fragments, const std::string& staging, Manifest* manifest);

// Puts files together that ranks wrote parts of: their tensors become whole ones. Durable when it returns OK. Memory:
// one tensor.
Status JoinParts(Env& env, const std::string& staging, Manifest* manifest);

// All that only the way to the manifest needed.
Status RemoveFragments(Env& env, const std::string& staging);

}  // namespace temper

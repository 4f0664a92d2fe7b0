// From the mesh options of a run to its mesh.
#pragma once

#include "compile/train_step.h"
#include "config/run_config.h"

namespace temper {

// Of the model: what tensor parallelism divides.
struct HeadCounts {
  int64_t heads = 1, kv_heads = 1;
};

// Ranks that the options name: the product of all sizes given, or nprocs where that is more; kMostRanks + 1 where it is
// more than a mesh can have, which MeshOf refuses.
int RanksNamed(const RunConfig& config);

// The mesh of `ranks` ranks, as rank `rank` has it. Errors: sizes that do not make up the number of ranks, heads that
// do not divide; with the numbers, and the nearest that work.
Result<MeshSpec> MeshOf(const RunConfig& config, int ranks, int rank, const HeadCounts& heads);

// What a user should know of how that mesh holds the model: that ranks have copies of KV heads. "": nothing.
std::string NoteOn(const Mesh& mesh);

}  // namespace temper

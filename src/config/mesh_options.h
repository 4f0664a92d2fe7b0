// From the mesh options of a run to its mesh.
#pragma once

#include "compile/train_step.h"
#include "config/run_config.h"

namespace temper {

// Ranks that the options name: the product of all sizes given, or nprocs where that is more; kMostRanks + 1 where it is
// more than a mesh can have, which MeshOf refuses.
int RanksNamed(const RunConfig& config);

// The mesh of `ranks` ranks, as rank `rank` has it. `heads`: the counts of heads that tensor parallelism has to divide,
// by label; ranks beyond the number of KV heads may hold copies of them. Errors: sizes that do not make up the number
// of ranks, heads that do not divide; with the numbers, and the nearest that work.
Result<MeshSpec> MeshOf(const RunConfig& config, int ranks, int rank, const std::vector<Dim>& heads);

// What a user should know of how that mesh holds the model: that ranks have copies of KV heads. "": nothing.
std::string NoteOn(const Mesh& mesh);

}  // namespace temper

// Turns the mesh options of a run into its mesh.
#pragma once

#include "compile/train_step.h"
#include "settings/run_config.h"

namespace temper {

// The number of ranks that the options imply: the product of all given sizes, or nprocs if that is larger; kMostRanks +
// 1 if it exceeds the largest mesh, which MeshOf refuses.
int RanksNamed(const RunConfig& config);

// The mesh of `ranks` ranks, for rank `rank`. `heads`: the numbers of heads that tensor parallelism must divide, by
// label; ranks beyond the number of KV heads may hold copies of them. Errors: sizes whose product is not the number of
// ranks, heads that do not divide; with the numbers, and the nearest that work.
Result<MeshSpec> MeshOf(const RunConfig& config, int ranks, int rank, const std::vector<Dim>& heads);

// A note to the user if ranks hold copies of KV heads; else "".
std::string NoteOn(const Mesh& mesh);

}  // namespace temper

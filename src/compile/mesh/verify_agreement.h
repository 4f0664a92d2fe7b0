// verify_agreement: proves that the Programs of all ranks of a mesh meet: whenever a rank comes to a collective, all
// others of its group come to the same one, in the same lane, on tensors of the same types, whose parts add up to the
// whole; and that no two ranks wait for each other in different groups. Of stages, which run different Programs: that
// every send between two ranks has its receive, of the same tag and type, in the same order.
//
// It needs every rank's Program, which a run has nowhere: tests and `temper plan --sharding` have them. In a run,
// communicators compare what each kernel is made for (comm/local/collective_kernels.cc).
#pragma once

#include <span>

#include "program/program.h"
#include "tensor/mesh.h"

namespace temper {

// REQUIRES: ranks[r] is the Program of rank r; mesh.ranks() of them. The error names two ranks, and the instruction,
// block and micro-batch that each has come to.
Status VerifyAgreement(const Mesh& mesh, std::span<const Program* const> ranks);

}  // namespace temper

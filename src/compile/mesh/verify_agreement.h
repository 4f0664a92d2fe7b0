// verify_agreement: proves that the collectives of all ranks of a mesh match: whenever a rank reaches a collective, all
// others of its group reach the same one, in the same lane, on tensors of the same types, whose parts make up the
// whole; and no two ranks wait for each other in different groups. For stages, which run different Programs: every send
// between two ranks has a receive of the same tag and type, in the same order.
//
// It needs the Programs of all ranks, which only tests and `temper plan --sharding` have. In a run, communicators
// compare the parameters of each kernel (comm/local/collective_kernels.cc).
#pragma once

#include <span>

#include "program/program.h"
#include "tensor/mesh.h"

namespace temper {

// REQUIRES: ranks[r] is the Program of rank r; mesh.ranks() of them. The error names two ranks, and the instruction,
// block and micro-batch that each has reached.
Status VerifyAgreement(const Mesh& mesh, std::span<const Program* const> ranks);

}  // namespace temper

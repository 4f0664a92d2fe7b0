// CollectivePlan: what one collective node means on one rank: which ranges of memory every member of the group gives
// and gets. Pure data, made once per kernel from its types and the sizes of the members' parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/kernel.h"
#include "tensor/mesh.h"

namespace temper {

// One tensor of a node, seen as `outer` rows of `whole` x `inner`; member m has parts[m] x `inner` of each. An
// all_reduce is one row, in which member m adds up parts[m].
struct CollectiveTensor {
  DType dtype = DType::kF32;
  bool opaque = false;                      // elements are bytes, gathered and never added
  int64_t outer = 1, whole = 0, inner = 1;  // elements
  std::vector<Part> parts;                  // per member, in the group's order

  int64_t element_bytes() const { return opaque ? 1 : SizeOf(dtype); }
  Bytes bytes() const { return {outer * whole * inner * element_bytes()}; }
  // Elements of one row of member m's part, and where that row begins in the whole.
  int64_t row(int m) const { return parts[static_cast<size_t>(m)].count * inner; }
  Bytes part_bytes(int m) const { return {outer * row(m) * element_bytes()}; }
  Bytes largest_part() const {
    int64_t count = 0;
    for (const Part& part : parts) count = std::max(count, part.count);
    return {outer * count * inner * element_bytes()};
  }
  int64_t row_begin(int m, int64_t o) const { return (o * whole + parts[static_cast<size_t>(m)].begin) * inner; }
};

struct CollectivePlan {
  Op op{};
  bool acc = false;
  int threads = 1;
  std::vector<CollectiveTensor> tensors;
  uint64_t fingerprint = 0;  // the same on all members
  Bytes bytes;               // of all wholes
  Bytes sent;                // by the op's cost rule
  // Set for collectives that move weights and gradients: after it, peers' memory need not stay resident
  // (PeerOperands::Forget). Collectives of activations, which are waited for at once or soon, and small ones would lose
  // more time finding pages again than the memory is worth.
  bool forgets = false;
};

// From this size on background collectives forget what they have read of their peers. A choice: below it are vectors
// and small adapters, which take little memory altogether, and each would pay a call for a few pages.
inline constexpr Bytes kForgetFrom = MiB(1);

// The node as all members must have it: a text without what may differ between them, the sizes of parts.
std::string DescribeCollective(const KernelSpec& spec);

// This member's parts, for PlanCollective: one number per tensor.
std::vector<int64_t> OwnPartSizes(const KernelSpec& spec);

// `sizes[m * tensors + t]`: from member m of `members`, for tensor t. Errors: parts that do not make up the whole.
// REQUIRES: spec fits its op's rule.
Result<CollectivePlan> PlanCollective(const KernelSpec& spec, int members, std::span<const int64_t> sizes);

}  // namespace temper

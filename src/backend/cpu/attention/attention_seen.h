// Which keys each query of attention sees, and the units of work that follow: the difference between attention over
// whole rows and a step of ring attention (graph/ops/attention_step.cc). All other code treats a query as a row of a
// tile that sees one run of keys of any rank. Internal to backend/cpu/attention*.cc.
#pragma once

#include <cstdint>

#include "device/kernel.h"
#include "graph/ops/attention_scratch.h"
#include "tensor/context_part.h"

namespace temper {

// Queries [begin, end) that see only keys [begin, end): whole documents, several short ones that share a tile's work,
// or a row that is dealt to ranks.
struct AttentionUnit {
  int32_t begin, end;
};

// Keys [first, last]; last < first: none.
struct SeenKeys {
  int32_t first, last;
};

class AttentionTokens {
 public:
  // REQUIRES: the op is one of attention, attention_step and their backwards.
  AttentionTokens(const KernelSpec& spec, const TensorType& q, const TensorType& v);

  bool is_step() const { return step_; }
  const AttentionDims& dims() const { return dims_; }

  // The units of a micro-batch, the costliest first, and the keys that each of its queries sees; returns the number of
  // units. Neither `first` nor `last` decreases from a query to the next of its unit. `last_T`: the last key that each
  // query sees; nullptr: itself. REQUIRES: both arrays have room for all tokens; of a step no last_T. kCorrupt if
  // document_start or last_T is invalid.
  Result<int64_t> Prepare(const int32_t* document_start, const int32_t* last_T, AttentionUnit* units,
                          SeenKeys* seen) const;

 private:
  Result<int64_t> PrepareDocuments(const int32_t* document_start, const int32_t* last_T, AttentionUnit* units,
                                   SeenKeys* seen) const;
  Result<int64_t> PrepareStep(const int32_t* document_start, AttentionUnit* units, SeenKeys* seen) const;

  const bool step_;
  const int64_t window_;
  const ContextPart queries_, keys_;  // of a step
  AttentionDims dims_;
};

}  // namespace temper

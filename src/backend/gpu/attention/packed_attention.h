// Attention of packed documents, each a sequence of its own, as vendors' libraries compute it: the contract between the
// kernel that looks at a batch's documents (packed_attention.cu) and the library that attends within them
// (cudnn_attention.h).
//
// Tokens are in x_T(H*E), bf16, as everywhere; tables in the device's memory describe the documents. The same tables
// serve every batch that has no more documents and no longer ones than a plan was made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/units.h"

namespace temper::gpu {

struct PackedShape {
  int64_t documents = 0;  // at most
  int64_t longest = 0;    // tokens of a document, at most
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  bool backward = false;
};

// Addresses in the device's memory, of the first of the tokens that attend.
struct PackedOperands {
  std::byte *q = nullptr, *k = nullptr, *v = nullptr,
            *o = nullptr;       // o: written by the forward pass, read by the other
  std::byte* lse_TH = nullptr;  // f32, natural; the same
  std::byte *d_o = nullptr, *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  // i32. lengths[documents]; starts[documents + 1]: the place of a document's first element in q, in k, in lse. Entries
  // after the last document have no length, and start after all.
  std::byte *lengths = nullptr, *q_starts = nullptr, *kv_starts = nullptr, *lse_starts = nullptr;
  // For the backward pass: delta_TH in f32, and, if heads share keys, room for 4 bytes per element of d_k and d_v as if
  // none did.
  std::byte *delta_TH = nullptr, *d_k_by_head = nullptr, *d_v_by_head = nullptr;
  std::byte* workspace = nullptr;  // kPackedWorkspace (graph/ops/packed_attention_scratch.h)
};

// One planned pass. Enqueues on the stream that its maker is bound to.
class PackedPass {
 public:
  virtual ~PackedPass() = default;
  virtual Status Run(const PackedOperands& operands) = 0;
};

class PackedAttention {
 public:
  virtual ~PackedAttention() = default;
  // kUnsupported if the library has no such pass, none that gives the same bits again, or none within the workspace.
  // Takes seconds: kernels are compiled.
  virtual Result<std::unique_ptr<PackedPass>> Make(const PackedShape& shape) = 0;
};

}  // namespace temper::gpu

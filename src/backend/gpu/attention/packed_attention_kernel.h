// Attention and its backward where a library attends within documents (packed_attention.h).
#pragma once

#include "backend/gpu/attention/attention_operands.h"

namespace temper::gpu {

// The kernel of the instruction: by the context's library for batches that it accepts, else `own`, which computes the
// same. `own` itself if the context has no library, or it does not take such operands at all.
std::unique_ptr<Kernel> WithPackedAttention(const KernelSpec& spec, const Context& context,
                                            std::unique_ptr<Kernel> own);

}  // namespace temper::gpu

// How far the kernels of a stream have come, visible to the host even when one of them has failed: a device answers
// nothing then, but pinned memory is the host's.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_api.h"

namespace temper::gpu {

// Enqueues that *word, pinned memory, becomes `place`: a launch of some microseconds.
Status WriteProgress(int64_t place, int64_t* word, gpuStream_t stream);

}  // namespace temper::gpu

// Shared by all functions of the simulated runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "simulated_gpu.h"
#include "stream.h"

namespace temper::cuda {

// The result of a call: an error stays the thread's last (cudaGetLastError) until it is read.
cudaError_t Ended(cudaError_t error);

// Checked first by every call that touches the GPU: whether there is one, and whether a kernel has failed.
cudaError_t Usable();

// For calls that may block on the GPU or on other threads: CUDA forbids them to a thread that captures in its own mode,
// and the capture fails.
cudaError_t UsableBesideRecording();
// The stream that this thread captures, or nullptr.
CUstream_st*& RecordedHere();

// The stream with that handle. The legacy default stream waits for none of ours, which are all created non-blocking.
CUstream_st& StreamOf(cudaStream_t stream);

}  // namespace temper::cuda

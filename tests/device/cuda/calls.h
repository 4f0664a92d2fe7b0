// What all functions of the simulated runtime have in common.
#pragma once

#include <cuda_runtime_api.h>

#include "simulated_gpu.h"
#include "stream.h"

namespace temper::cuda {

// The result of a call: an error is the thread's last (cudaGetLastError) until it is asked for.
cudaError_t Ended(cudaError_t error);

// What every call that touches the GPU finds first: that there is none, or that a kernel has failed.
cudaError_t Usable();

// For calls that might wait for the GPU or for other threads: CUDA forbids them to a thread that records in its own
// mode, and gives the recording up.
cudaError_t UsableBesideRecording();
// The stream that this thread records, or nullptr.
CUstream_st*& RecordedHere();

// The stream of that name. The legacy default stream waits for none of ours, which are all made not to.
CUstream_st& StreamOf(cudaStream_t stream);

}  // namespace temper::cuda

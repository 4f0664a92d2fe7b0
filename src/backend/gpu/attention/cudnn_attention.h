// Attention of packed documents by cuDNN's fused kernels, through its graph interface (cudnn_api.h). Plans can be made
// for a device that is only described, so that our graphs are checked with the library without a GPU. Host code.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/attention/cudnn_api.h"
#include "backend/gpu/attention/packed_attention.h"

namespace temper::gpu {

// "cuDNN 9.19.0". Errors: as LoadCudnn.
Result<std::string> CudnnVersion(const std::string& library = "");

// Whether cuDNN attends on NVIDIA's GPUs of compute capability `major`.x, and our own kernels only where it cannot: on
// B200 and B300 (10.0, 10.3), whose matrix units our kernels use like those of an A100. On Hopper its deterministic
// backward pass would take 2.5 GiB of scratch for 16,384 tokens of an 8B model; elsewhere (8.x, 12.x) it has none for
// packed documents.
bool PrefersCudnn(int major);

// On `stream`, a cudaStream_t of the current device, which outlives it. Errors: as LoadCudnn; the device is refused.
Result<std::unique_ptr<PackedAttention>> MakeCudnnAttention(void* stream, const std::string& library = "");

// One that plans for the device that `device_json` describes (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), and runs
// nothing: for tests, which have only a library of the driver's name in place of a GPU.
Result<std::unique_ptr<PackedAttention>> MakeCudnnPlanner(const std::string& device_json,
                                                          const std::string& library = "");

}  // namespace temper::gpu

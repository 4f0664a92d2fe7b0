#include "backend/gpu/hardware/progress.h"

namespace temper::gpu {
namespace {

__global__ void StoreWord(int64_t place, int64_t* word) {
  *word = place;
}

}  // namespace

Status WriteProgress(int64_t place, int64_t* word, gpuStream_t stream) {
  return TEMPER_LAUNCH(StoreWord, 1u, 1u, stream, place, word);
}

}  // namespace temper::gpu

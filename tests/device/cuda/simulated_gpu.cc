#include "simulated_gpu.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace temper::cuda {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
// From data sheets and CUDA's programming guide ("Technical Specifications per Compute Capability").
constexpr GpuFacts kGpus[] = {
    {"7.0", "simulated V100", 7, 0, 80, 16 * kGiB, 96 << 10},
    {"8.0", "simulated A100", 8, 0, 108, 80 * kGiB, 163 << 10},
    {"9.0", "simulated H200", 9, 0, 132, 140 * kGiB, 227 << 10},
    {"12.0", "simulated RTX PRO 6000", 12, 0, 188, 95 * kGiB, 99 << 10},
};

}  // namespace

SimulatedGpu& SimulatedGpu::The() {
  static auto* const gpu = new SimulatedGpu;
  return *gpu;
}

SimulatedGpu::SimulatedGpu() {
  const char* const chosen = std::getenv("TEMPER_TEST_GPU");
  const std::string_view all = chosen == nullptr ? "9.0" : chosen, number = all.substr(0, all.find('x'));
  for (const GpuFacts& facts : kGpus) {
    if (number == facts.number) facts_ = &facts;
  }
  if (facts_ != nullptr) memory_size_ = facts_->memory;
  if (facts_ != nullptr) count_ = number == all ? 1 : std::atoi(chosen + number.size() + 1);
  TEMPER_CHECK(facts_ != nullptr || number == "none") << "TEMPER_TEST_GPU is " << number;
  const char* const bytes = std::getenv("TEMPER_TEST_GPU_MEMORY");
  real_memory_ = bytes == nullptr ? 4 * kGiB : std::atoll(bytes);
  dry_ = std::getenv("TEMPER_TEST_GPU_DRY") != nullptr;
  if (dry_ && facts_ != nullptr) {
    memory_size_ = bytes == nullptr ? facts_->memory : real_memory_;
    real_memory_ = memory_size_;
  }
  if (const char* const name = std::getenv("TEMPER_TEST_GPU_FAIL")) kernel_to_fail_ = name;
}

void SimulatedGpu::Fail(cudaError_t error, const std::string& why) {
  cudaError_t none = cudaSuccess;
  if (failed_.compare_exchange_strong(none, error)) Say(why);
}

void Say(const std::string& what) {
  std::fprintf(stderr, "simulated GPU: %s\n", what.c_str());
}

}  // namespace temper::cuda

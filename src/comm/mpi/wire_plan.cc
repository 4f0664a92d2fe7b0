#include "comm/mpi/wire_plan.h"

namespace temper {
namespace {

constexpr int64_t kAlignment = 8;  // of a tensor in a stream: no chunk ends within an element

}  // namespace

WirePlan::WirePlan(const CollectivePlan& plan, size_t first, size_t count, bool wide, int64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes) {
  TEMPER_CHECK(chunk_bytes > 0 && chunk_bytes % kAlignment == 0) << chunk_bytes;
  const size_t owners = plan.tensors[first].parts.size();
  for (size_t t = first; t < first + count; ++t) {
    const bool widened = wide && plan.tensors[t].dtype == DType::kBF16;
    element_bytes_.push_back(widened ? SizeOf(DType::kF32) : plan.tensors[t].element_bytes());
  }
  for (size_t owner = 0; owner < owners; ++owner) {
    std::vector<int64_t> begins = {0}, elements;
    for (size_t t = 0; t < count; ++t) {
      const CollectiveTensor& tensor = plan.tensors[first + t];
      elements.push_back(tensor.outer * tensor.row(static_cast<int>(owner)));
      begins.push_back(AlignUp({begins.back() + elements.back() * element_bytes_[t]}, kAlignment).v);
    }
    begins_.push_back(std::move(begins));
    elements_.push_back(std::move(elements));
  }
}

}  // namespace temper

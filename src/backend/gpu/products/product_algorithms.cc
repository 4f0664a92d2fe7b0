#include "backend/gpu/products/product_algorithms.h"

#include <algorithm>
#include <map>
#include <optional>

namespace temper::gpu {
namespace {

// An algorithm replaces an earlier one only if it takes less than this part of its time: clocks vary by about a
// percent.
constexpr double kFaster = 0.98;

std::optional<size_t> Find(const ProductWithAlgorithms& product, const std::string& algorithm) {
  const auto& offered = product.offered();
  const auto it = std::find(offered.begin(), offered.end(), algorithm);
  if (it == offered.end()) return std::nullopt;
  return static_cast<size_t>(it - offered.begin());
}

Result<size_t> FindFastest(ProductWithAlgorithms& product, ProductTimer& timer, ProductTiming* done) {
  const size_t offered = product.offered().size();
  if (offered == 1) return size_t{0};
  const Result<ProductOperands> operands = timer.Draw(product.shape());
  if (operands.status().code() == StatusCode::kOutOfMemory) return size_t{0};
  TEMPER_RETURN_IF_ERROR(operands.status());
  ++done->products;
  size_t fastest = 0;
  std::optional<Seconds> least;
  for (size_t i = 0; i < offered; ++i) {
    product.Use(i);
    const Result<Seconds> taken = timer.Time([&] { return product.Run(*operands); });
    ++done->algorithms;
    if (!taken.ok()) continue;  // an error of the device sticks: the next call that matters returns it
    if (least && taken->v >= kFaster * least->v) continue;
    least = *taken;
    fastest = i;
  }
  return fastest;
}

}  // namespace

Status ChooseAlgorithms(const std::vector<ProductWithAlgorithms*>& products, ProductTimer& timer,
                        ProductAlgorithms* algorithms, ProductTiming* done) {
  std::map<std::string, std::vector<ProductWithAlgorithms*>> by_name;
  for (ProductWithAlgorithms* product : products) by_name[NameOf(product->shape())].push_back(product);
  for (const auto& [name, alike] : by_name) {
    ProductWithAlgorithms& one = *alike.front();
    std::string& chosen = (*algorithms)[name];
    if (!chosen.empty() && Find(one, chosen)) {
      ++done->kept;
    } else {
      if (!chosen.empty()) ++done->refused;
      TEMPER_ASSIGN_OR_RETURN(const size_t fastest, FindFastest(one, timer, done));
      chosen = one.offered()[fastest];
    }
    for (ProductWithAlgorithms* product : alike) product->Use(Find(*product, chosen).value_or(0));
  }
  return OkStatus();
}

}  // namespace temper::gpu

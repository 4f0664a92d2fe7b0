// Times products on a device, with operands in memory that is lent to it. Thread rule: that of the device's stream.
#pragma once

#include <span>
#include <vector>

#include "backend/gpu/products/product_timer.h"
#include "device/device.h"
#include "tensor/dtype.h"

namespace temper::gpu {

class DeviceProductTimer final : public ProductTimer {
 public:
  // Both outlive it. `memory` is the device's, zeroed.
  DeviceProductTimer(Device& device, std::span<std::byte> memory) : device_(device), memory_(memory) {}
  Result<ProductOperands> Draw(const ProductShape& shape) override;
  Result<Seconds> Time(const std::function<Status()>& enqueue) override;
  // Zeroes what it has used of the memory.
  Status Clear();

 private:
  // Repeats `piece` in the first `bytes` of the memory.
  Status Fill(const std::vector<bf16>& piece, size_t bytes);

  Device& device_;
  const std::span<std::byte> memory_;
  std::vector<bf16> piece_;
  size_t used_ = 0;
};

}  // namespace temper::gpu

// A device's memory, simulated without a device.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "device/device.h"

namespace temper {

// Memory that is not the host's: the same bytes, but accessed only through copies that are done late.
class Elsewhere final : public Stream {
 public:
  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
    return Copy(host.data(), device, host.size());
  }
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
    return Copy(device, host.data(), host.size());
  }
  Status Synchronize() override {
    for (const auto& copy : waiting_) copy();
    waiting_.clear();
    return OkStatus();
  }
  // Number of copies so far, and the bytes of the largest.
  int64_t copies() const { return copies_; }
  size_t most() const { return most_; }
  void Forget() { copies_ = 0; }

 private:
  Status Copy(const std::byte* from, std::byte* to, size_t size) {
    waiting_.push_back([=] { std::memcpy(to, from, size); });
    most_ = std::max(most_, size);
    ++copies_;
    return OkStatus();
  }

  std::vector<std::function<void()>> waiting_;
  int64_t copies_ = 0;
  size_t most_ = 0;
};

}  // namespace temper

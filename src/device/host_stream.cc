#include <cstring>

#include "base/check.h"
#include "device/device.h"

namespace temper {
namespace {

class Host final : public Stream {
 public:
  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
    if (!host.empty()) std::memcpy(device, host.data(), host.size());
    return OkStatus();
  }
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
    if (!host.empty()) std::memcpy(host.data(), device, host.size());
    return OkStatus();
  }
  Status CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows) override {
    for (int64_t r = 0; r < rows && width > Bytes{0}; ++r) {
      std::memcpy(to.data + r * to.pitch.v, from.data + r * from.pitch.v, static_cast<size_t>(width.v));
    }
    return OkStatus();
  }
  Status Synchronize() override { return OkStatus(); }
};

}  // namespace

Status Stream::CopyRows(const Rows&, const Rows&, Bytes, int64_t) {
  TEMPER_CHECK(false) << "copies within memory that a stream cannot follow addresses into";
  return OkStatus();
}
Status Stream::Mark(Event&) {
  return OkStatus();
}
Status Stream::Await(const Event&) {
  return OkStatus();
}

Stream& HostStream() {
  static Host host;
  return host;
}

}  // namespace temper

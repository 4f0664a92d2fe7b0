// Exchanges of a few numbers between kernels of several ranks' devices: what Exchange (device/communicator.h) is to
// kernels on the host.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "base/units.h"
#include "tensor/mesh.h"

namespace temper {

class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;
  virtual int index() const = 0;  // of this rank in the group
  virtual int size() const = 0;
  // What member i gives comes to lie at `all` + i * size. Addresses are the device's; it is enqueued among its kernels,
  // and graphs cannot record it.
  virtual Status AllGather(const std::byte* mine, std::byte* all, Bytes size) = 0;
};

// Who makes them.
class DeviceExchanges {
 public:
  virtual ~DeviceExchanges() = default;
  // Collective over the group.
  virtual Result<std::unique_ptr<DeviceExchange>> MakeDeviceExchange(const Mesh& mesh, AxisSet axes) = 0;
};

}  // namespace temper

// Exchanges of a few numbers between kernels on several ranks' devices: the counterpart of Exchange
// (device/communicator.h) for kernels on the host.
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
  // The data of member i goes to `all` + i * size. Addresses are the device's; the exchange is enqueued among its
  // kernels, and recordings cannot contain it.
  virtual Status AllGather(const std::byte* mine, std::byte* all, Bytes size) = 0;
};

// Makes exchanges.
class DeviceExchanges {
 public:
  virtual ~DeviceExchanges() = default;
  // Collective over the group.
  virtual Result<std::unique_ptr<DeviceExchange>> MakeDeviceExchange(const Mesh& mesh, AxisSet axes) = 0;
};

}  // namespace temper

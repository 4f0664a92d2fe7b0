#include "device/store.h"

namespace temper {

std::byte* StoreStream::AddressOf(Bytes at) const {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>((base_ + at).v));
}

Bytes StoreStream::PlaceOf(const std::byte* address) const {
  return Bytes{static_cast<int64_t>(reinterpret_cast<uintptr_t>(address))} - base_;
}

Status StoreStream::CopyToDevice(std::span<const std::byte> host, std::byte* device) {
  return host.empty() ? OkStatus() : store_.Write(PlaceOf(device), host);
}

Status StoreStream::CopyToHost(const std::byte* device, std::span<std::byte> host) {
  return host.empty() ? OkStatus() : store_.Read(PlaceOf(device), host);
}

}  // namespace temper

// The contract between the runtime and memory that no processor can follow an address into: the disk tier. Bytes are
// read and written by their place in one flat space.
//
// Thread rule: one thread reads while another writes; neither touches what the other does. No call allocates.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/units.h"

namespace temper {

class Store {
 public:
  virtual ~Store() = default;
  virtual Bytes size() const = 0;
  // Errors name the file, the place and the cause. REQUIRES: within size().
  virtual Status Read(Bytes at, std::span<std::byte> to) = 0;
  virtual Status Write(Bytes at, std::span<const std::byte> from) = 0;
};

}  // namespace temper

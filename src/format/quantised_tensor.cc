#include "format/quantised_tensor.h"

#include "base/check.h"

namespace temper {

Status QuantisedTensor::ReadTransposedAs(int64_t /*first*/, DType /*target*/, std::span<std::byte> /*out*/) const {
  TEMPER_CHECK(false) << whole_.name << " is stored as it is";
  return OkStatus();
}

}  // namespace temper

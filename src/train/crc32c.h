// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) for TensorBoard's record format. A table and one byte at a time
// are enough: records have about a hundred bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

uint32_t Crc32c(std::string_view data);

}  // namespace temper

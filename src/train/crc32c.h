// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as TensorBoard's record format wants it. A table and a byte at
// a time: records are a hundred bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

uint32_t Crc32c(std::string_view data);

}  // namespace temper

#include "base/philox.h"

#include <xxhash.h>

#include <cmath>

namespace temper {

uint64_t HashName(std::string_view name) {
  return XXH64(name.data(), name.size(), 0);
}

std::array<uint32_t, 4> Philox(const RngKey& key, uint64_t index) {
  // Counter: element block and step; key: seed xor name, so that equal (seed, name) of two steps never meet.
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(key.step), c3 = static_cast<uint32_t>(key.step >> 32);
  const uint64_t k = MixedKey(key);
  uint32_t k0 = static_cast<uint32_t>(k), k1 = static_cast<uint32_t>(k >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c0, p1 = uint64_t{kPhiloxMultiplier1} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {c0, c1, c2, c3};
}

float NormalAt(const RngKey& key, uint64_t i) {
  const auto block = Philox(key, i / 2);
  const int lane = static_cast<int>(i % 2) * 2;
  const double u1 = (static_cast<double>(block[lane]) + 1.0) * 0x1.0p-32;  // in (0, 1]: log is finite
  const double u2 = static_cast<double>(block[lane + 1]) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * M_PI * u2));
}

}  // namespace temper

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
// A draw is a pure function of (key, counter): no state, so a value does not depend on thread, rank or recomputation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace temper {

// The stream of one random value in one step: what a draw depends on besides the element's index.
struct RngKey {
  uint64_t seed = 0;
  uint64_t name_hash = 0;  // HashName of the value's canonical name
  uint64_t step = 0;       // optimizer step and micro-batch, mixed by the caller
};

// XXH64 of a canonical value name. Stable across machines and versions: it is part of the checkpoint's meaning.
uint64_t HashName(std::string_view name);

// The paper's section 4.3: the multipliers, and the key words' increments per round (golden ratio, sqrt(3) - 1).
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

// The 64-bit Philox key of a stream; the counter is (index, step). For kernels that draw many blocks at a time.
constexpr uint64_t MixedKey(const RngKey& key) {
  return key.seed * 0x9E3779B97F4A7C15ull ^ key.name_hash;
}

// Four 32-bit draws for counter block `index` (elements 4*index .. 4*index+3 of the value).
std::array<uint32_t, 4> Philox(const RngKey& key, uint64_t index);

// Uniform in [0, 1) with 24 bits, exactly representable in float.
inline float UnitFloat(uint32_t draw) {
  return static_cast<float>(draw >> 8) * 0x1.0p-24f;
}

// Element `i` of the value's stream of uniforms.
inline float UniformAt(const RngKey& key, uint64_t i) {
  return UnitFloat(Philox(key, i / 4)[i % 4]);
}

// Element `i` of the value's stream of standard normals (Box-Muller on elements 2i, 2i+1 of the uniform stream).
float NormalAt(const RngKey& key, uint64_t i);

}  // namespace temper

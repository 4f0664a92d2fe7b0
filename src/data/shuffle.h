// Shuffles of the data pipeline: a pure function of (seed,
// name, epoch), the same on every machine and in every version.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace temper {

// Permutes `items` by Fisher-Yates with Philox draws: every order is equally likely. O(n), allocates nothing.
void Shuffle(uint64_t seed, std::string_view name, int64_t epoch, std::span<int32_t> items);

}  // namespace temper

// ALiBi (Press et al. 2021): in the place of positions, scores shrink with the distance of query and key.
#pragma once

#include <cstdint>
#include <vector>

namespace temper {

// The slope of each head: 2^(-8 i / heads) for i from 1 on where heads are a power of two, else those of the power
// below and then every other one of the power above (transformers, build_alibi_tensor; build_mpt_alibi_tensor, which
// walks the other way round, has the same).
std::vector<double> AlibiSlopes(int64_t heads);

}  // namespace temper

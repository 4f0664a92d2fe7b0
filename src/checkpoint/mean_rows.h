// How rows of new words begin: as transformers' resize_token_embeddings(mean_resizing=True) draws them, from the normal
// distribution with the mean of the table's rows and 1e-9 of their covariance, so that a new word is as likely as the
// mean of all. Where that covariance has no full rank the mean itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"

namespace temper {

// Reads rows [first, first + rows) of a table, in f32.
using ReadTableRows = std::function<Status(int64_t first, int64_t rows, std::span<float> out)>;

// `count` new rows for a table of `rows` rows of `columns` elements. Equal calls give equal rows; torch's draws differ,
// as they come from another generator. The noise is a sum of up to 4,096 rows with normal factors, which has the
// covariance of these. Reads the table once, and those rows again.
Result<std::vector<float>> MeanRows(const ReadTableRows& read, int64_t rows, int64_t columns, int64_t count);

}  // namespace temper

#include "checkpoint/mean_rows.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace temper {
namespace {

constexpr int64_t kElementsOfPiece = 1 << 20;
constexpr int64_t kRowsOfNoise = 4096;
constexpr double kCovariance = 1e-9;  // modeling_utils.py: epsilon

}  // namespace

Result<std::vector<float>> MeanRows(const ReadTableRows& read, int64_t rows, int64_t columns, int64_t count) {
  TEMPER_CHECK(rows > 0 && columns > 0 && count > 0) << rows << " rows of " << columns << ", and " << count;
  std::vector<double> mean(static_cast<size_t>(columns));
  const int64_t at_once = std::max<int64_t>(kElementsOfPiece / columns, 1);
  std::vector<float> piece;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t n = std::min(at_once, rows - first);
    piece.resize(static_cast<size_t>(n * columns));
    TEMPER_RETURN_IF_ERROR(read(first, n, piece));
    for (size_t i = 0; i < piece.size(); ++i) mean[i % mean.size()] += static_cast<double>(piece[i]);
  }
  for (double& x : mean) x /= static_cast<double>(rows);
  std::vector<double> made;
  for (int64_t row = 0; row < count; ++row) made.insert(made.end(), mean.begin(), mean.end());
  if (rows > columns) {
    const int64_t used = std::min(rows, kRowsOfNoise);
    const RngKey key{.seed = 0, .name_hash = HashName("rows of new words")};
    const double scale = std::sqrt(kCovariance / static_cast<double>(used));
    piece.resize(mean.size());
    for (int64_t k = 0; k < used; ++k) {
      TEMPER_RETURN_IF_ERROR(read(k * rows / used, 1, piece));
      for (int64_t row = 0; row < count; ++row) {
        const double factor = scale * static_cast<double>(NormalAt(key, static_cast<uint64_t>(row * used + k)));
        double* const to = made.data() + row * columns;
        for (size_t c = 0; c < mean.size(); ++c) to[c] += factor * (static_cast<double>(piece[c]) - mean[c]);
      }
    }
  }
  return std::vector<float>(made.begin(), made.end());
}

}  // namespace temper

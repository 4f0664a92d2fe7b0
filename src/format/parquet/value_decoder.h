// ValueDecoder: the values of a Parquet page, a batch at a time, in any encoding that is written today.
// Source: parquet-format, Encodings.md. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/parquet/parquet_schema.h"

namespace temper {

// Values of one column. By how they are stored, one of the three is used: booleans and integers are in `ints`, float
// and double in `numbers`, INT96 and bytes in `texts`, which are views of the page, of its dictionary, or of `arena`.
struct ParquetValues {
  std::vector<int64_t> ints;
  std::vector<double> numbers;
  std::vector<std::string_view> texts;
  std::string arena;

  void Clear() {
    ints.clear();
    numbers.clear();
    texts.clear();
    arena.clear();
  }
};

class ValueDecoder {
 public:
  // `encoding`: of parquet.thrift. `most`: values that the page may have. `dictionary`: nullptr if there is none. All
  // that is given must outlive the decoder. Errors (without a place): an encoding that is unknown or does not suit the
  // type, values whose sizes contradict each other.
  static Result<std::unique_ptr<ValueDecoder>> Make(int64_t encoding, const ParquetType& type, std::string_view bytes,
                                                    size_t most, const ParquetValues* dictionary);
  virtual ~ValueDecoder() = default;

  // Appends up to n values and returns how many: at least one, unless the page has no more, or what follows is
  // damaged. Memory: some 1 MiB and the longest value. REQUIRES: n > 0; `out` is cleared.
  virtual size_t Decode(size_t n, ParquetValues& out) = 0;
};

}  // namespace temper

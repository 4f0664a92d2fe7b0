// PageCodec: unpacks the pages of a Parquet file, each on its own. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace temper {

class PageCodec {
 public:
  PageCodec();
  ~PageCodec();

  // Whether pages of this codec (a CompressionCodec of parquet.thrift) can be unpacked. The error names it.
  static Status Check(int64_t codec);

  // Fills `out` with what `in` holds. False if that is damaged, or not as long. REQUIRES: Check(codec) is OK.
  bool Unpack(int64_t codec, std::span<const char> in, std::span<char> out);

 private:
  struct Contexts;
  const std::unique_ptr<Contexts> contexts_;
};

}  // namespace temper

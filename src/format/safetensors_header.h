// The header of a safetensors file: names, types and offsets of its tensors. Pure data, shared by reader and
// writer. The format: u64 (little-endian) header length | JSON header | data, where the header maps
//   name -> {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end)}   (offsets count from the end of the
//   header)
// and "__metadata__" maps strings to strings. Elements are row-major and little-endian; the tensors cover the data
// without a hole or an overlap.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tensor/shape.h"

namespace temper {

// Longest header that is read: the limit of the format's own library. Real ones are shorter: 10^5 tensors need 15 MB.
constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// An element type of the format. All can be listed and copied; those with a `dtype` can be computed with.
struct StoredDType {
  std::string_view name;       // "BF16", "F8_E4M3", ...
  int bits;                    // per element; the sub-byte ones are packed
  std::optional<DType> dtype;  // the same type in Temper
};
// nullptr if the format does not know the name. The result lives for ever.
const StoredDType* FindStoredDType(std::string_view name);

struct StoredTensor {
  std::string name;
  const StoredDType* dtype = nullptr;
  std::vector<int64_t> dims;   // any rank up to 64; the product of the non-zero ones fits int64 in bits
  int64_t begin = 0, end = 0;  // bytes, from the end of the header

  int64_t elements() const;
  Bytes bytes() const { return {end - begin}; }
  std::string ToString() const;  // "BF16[2, 3]"
  // As a type to compute with; kUnsupported (naming the tensor, not the file) for others and for ranks above 4.
  Result<TensorType> type() const;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
};

// Parses and checks `json` (untrusted) of a file with `data_bytes` after its header. Memory stays within about ten
// times the header's size. `path` names the file in errors.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes, const std::string& path);

// The bytes before the data: length, JSON, and spaces up to a multiple of `alignment`, itself one of 8. Deterministic.
// kInvalidArgument for a name that is duplicate, reserved or not UTF-8.
Result<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header, int64_t alignment = 8);

}  // namespace temper

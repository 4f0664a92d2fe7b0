// GgufHeader: what a GGUF file says before its data: keys with values, and names, types and places of tensors. Format:
// gguf_writer.h; versions 2 and 3 are read, little-endian. The file is untrusted: counts are checked against what the
// file can hold, and memory stays below some 100 MB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "format/gguf/gguf_writer.h"

namespace temper {

struct GgufEntry {
  std::string name;
  std::vector<int64_t> dims;  // the outermost first; their product fits int64
  uint32_t type = 0;          // ggml's id
  int64_t begin = 0;          // from data_begin
};

struct GgufHeader {
  // Integers of all widths become uint32_t or, if negative or said to be signed, int32_t; those that fit neither are
  // left out. f64 becomes float.
  GgufMetadata metadata;
  std::vector<GgufEntry> tensors;  // in the file's order; names are unique
  int64_t data_begin = 0;
};

// Whether a file that begins so is a GGUF file.
bool IsGgufMagic(std::span<const std::byte, 4> head);

// Errors name the file.
Result<GgufHeader> ReadGgufHeader(const RandomAccessFile& file);

}  // namespace temper

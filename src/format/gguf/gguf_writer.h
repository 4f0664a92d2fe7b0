// GgufWriter: writes one GGUF file: metadata, then tensors that are declared up front and whose data streams through,
// piece by piece: no tensor need be in memory whole. The bytes depend only on the arguments.
// Format (ggml/docs/gguf.md, version 3, little-endian): "GGUF" | u32 version | u64 tensors | u64 pairs | key, type and
// value of each pair | name, dims (the innermost first), type and offset of each tensor | data, each tensor at a
// multiple of 32.
//
// The file appears under its name only when Finish succeeds: until then it is PATH.tmp, which the destructor removes.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/env.h"
#include "format/gguf/block_format.h"

namespace temper {

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<bool>, std::vector<std::string>>;

// Keys and values, in the order in which they were first set.
class GgufMetadata {
 public:
  void Set(std::string key, GgufValue value);
  void Add(const GgufMetadata& others);
  const GgufValue* Find(std::string_view key) const;  // nullptr where absent
  const std::vector<std::pair<std::string, GgufValue>>& pairs() const { return pairs_; }

 private:
  std::vector<std::pair<std::string, GgufValue>> pairs_;
};

struct GgufDeclaration {
  std::string name;
  std::vector<int64_t> dims;  // the outermost first: [out, in]
  BlockType type = BlockType::kF32;

  int64_t elements() const;
  Bytes bytes() const { return FormatOf(type).BytesOf(elements()); }
};

class GgufWriter {
 public:
  // Errors: a name that is too long for llama.cpp (64 bytes) or stands twice. REQUIRES: rows are whole blocks. `env`
  // must outlive the writer.
  static Result<GgufWriter> Create(Env& env, const std::string& path, const GgufMetadata& metadata,
                                   std::vector<GgufDeclaration> tensors);
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) = delete;
  ~GgufWriter();

  Bytes file_size() const { return size_; }

  // The next bytes, of tensors in the order in which they were declared. REQUIRES: none is overfilled.
  Status Append(std::span<const std::byte> bytes);
  // REQUIRES: every declared byte was appended. Syncs, closes and renames; the file is durable when this returns OK.
  Status Finish();

 private:
  GgufWriter(Env& env, std::string path, std::vector<GgufDeclaration> tensors)
      : env_(&env), path_(std::move(path)), tensors_(std::move(tensors)) {}
  Status Pad(int64_t filled);

  Env* env_;
  std::string path_;
  std::vector<GgufDeclaration> tensors_;
  Bytes size_;
  std::unique_ptr<WritableFile> file_;  // null once finished or moved from
  size_t current_ = 0;                  // index in tensors_
  int64_t filled_ = 0;                  // bytes of it that are written
};

}  // namespace temper

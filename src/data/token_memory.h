// MemoryTokens: a token store in memory, for data that needs no file.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/token_store.h"
#include "data/token_writer.h"

namespace temper {

class MemoryTokens {
 public:
  explicit MemoryTokens(SectionSet sections = {}) : writer_(std::make_unique<Buffer>(bytes_), sections) {}
  MemoryTokens(const MemoryTokens&) = delete;
  MemoryTokens& operator=(const MemoryTokens&) = delete;

  TokenWriter& writer() { return writer_; }
  // REQUIRES: the writer has finished.
  std::unique_ptr<MappedFile> Take() { return MappedFile::OfBuffer(std::move(bytes_)); }

  // For tests: as TokenWriter's, and the store of what was added.
  MemoryTokens& Add(std::span<const int32_t> tokens, std::span<const uint8_t> supervised,
                    std::span<const TokenWeight> weights = {}, std::span<const size_t> parts = {},
                    const SampleValues& values = {}) {
    TEMPER_CHECK(writer_.Add(tokens, supervised, weights, /*line=*/0, parts, values).ok());
    return *this;
  }
  TokenStore Store() {
    TEMPER_CHECK(writer_.Finish("").ok());
    auto store = TokenStore::Open(Take(), TokenStore::Check::kBorders, 0);
    TEMPER_CHECK(store.ok()) << store.status().message();
    return *std::move(store);
  }

 private:
  class Buffer final : public WritableFile {
   public:
    explicit Buffer(std::vector<std::byte>& bytes) : bytes_(bytes) {}
    using WritableFile::Append;
    Status Append(std::span<const std::byte> data) override {
      bytes_.insert(bytes_.end(), data.begin(), data.end());
      return OkStatus();
    }
    Status Sync() override { return OkStatus(); }
    Status Close() override { return OkStatus(); }

   private:
    std::vector<std::byte>& bytes_;
  };

  std::vector<std::byte> bytes_;
  TokenWriter writer_;
};

}  // namespace temper

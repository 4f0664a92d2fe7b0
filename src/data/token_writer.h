// TokenWriter: writes a token file, sample by sample. Holds 2 MiB, however many samples there are.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/template/token_weight.h"
#include "data/token_file.h"
#include "format/checksum.h"

namespace temper {

// One thread at a time.
class TokenWriter {
 public:
  // `sections`: what every sample has beside its tokens.
  explicit TokenWriter(std::unique_ptr<WritableFile> file, SectionSet sections = {});

  // supervised[i]: predicting tokens[i] is part of the loss. Nothing predicts the first token of a sample, so its flag
  // is stored as 0. weights[i]: how much that counts; empty: 1. `line`: at which the sample's row begins in its file.
  // `parts`: where parts of the sample begin, as Sample's. `values`: of the sections. REQUIRES: at least one token; as
  // many flags; as many weights, or none; no supervised token has weight 0, and none begins a part; no negative label.
  Status Add(std::span<const int32_t> tokens, std::span<const uint8_t> supervised,
             std::span<const TokenWeight> weights = {}, int64_t line = 0, std::span<const size_t> parts = {},
             const SampleValues& values = {});
  // Ends the file, with `about` for its reader, and makes it durable. The file is whole only if this returned OK.
  Status Finish(std::string_view about);

  int64_t size() const { return static_cast<int64_t>(footer_.samples); }
  int64_t total_tokens() const { return static_cast<int64_t>(footer_.tokens); }

 private:
  Status Write(std::span<const std::byte> data);
  Status WriteWords();
  Status EndChunk();

  const std::unique_ptr<WritableFile> file_;
  const SectionSet sections_;
  uint64_t written_ = 0;                                           // bytes
  std::vector<uint32_t> words_;                                    // not written yet
  std::vector<TokenEntry> entries_;                                // of the chunk
  std::array<std::vector<uint32_t>, kAllSections.size()> values_;  // of the chunk, by section
  std::vector<uint64_t> directory_;                                // offsets of the entries of the chunks before
  TokenFooter footer_;
  Checksum words_sum_, entries_sum_, content_sum_;
};

}  // namespace temper

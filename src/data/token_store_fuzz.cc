// libFuzzer target: any bytes as a token file. It is refused, or every number of it is one that a run can use. The
// checksums are made to fit first: random bytes would never get past them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "data/token_store.h"
#include "format/checksum.h"

namespace temper {
namespace {

constexpr int64_t kVocab = 512;

uint64_t SumOf(std::span<const std::byte> data) {
  Checksum sum;
  sum.Update(data);
  return sum.Value();
}

// For a file of one chunk.
void FixSums(std::vector<std::byte>& bytes) {
  TokenFooter footer;
  if (bytes.size() < sizeof(footer)) return;
  const size_t end = bytes.size() - sizeof(footer);
  std::memcpy(&footer, bytes.data() + end, sizeof(footer));
  footer.magic = kTokenFileMagic;
  const size_t entries = (footer.samples % (kChunkSamples + 1)) * sizeof(TokenEntry);
  const size_t tail = footer.about_bytes % (end + 1) + (entries > 0 ? sizeof(uint64_t) : 0);
  if (entries + tail <= end) {
    const auto all = std::span<const std::byte>(bytes);
    const size_t border = end - tail - entries;
    if (entries > 0) std::memcpy(bytes.data() + border + entries, &border, sizeof(border));
    footer.words_sum = SumOf(all.first(border));
    footer.entries_sum = SumOf(all.subspan(border, entries));
    Checksum content;
    for (size_t at = border; at < border + entries; at += sizeof(TokenEntry)) {
      content.Update(all.subspan(at + offsetof(TokenEntry, length_and_flags), sizeof(uint32_t)));
    }
    content.Update(std::as_bytes(std::span(&footer.words_sum, 1)));
    footer.content_sum = content.Value();
  }
  std::memcpy(bytes.data() + end, &footer, sizeof(footer));
  footer.tail_sum = SumOf(std::span<const std::byte>(bytes).subspan(
      end - std::min(end, tail), std::min(end, tail) + offsetof(TokenFooter, tail_sum)));
  std::memcpy(bytes.data() + end, &footer, sizeof(footer));
}

}  // namespace
}  // namespace temper

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if ((data[0] & 1) != 0) FixSums(bytes);
  const auto check = (data[0] & 2) != 0 ? TokenStore::Check::kAll : TokenStore::Check::kBorders;
  const auto store = TokenStore::Open(MappedFile::OfBuffer(std::move(bytes)), check, kVocab);
  if (!store.ok()) return 0;
  int64_t tokens = 0;
  for (int64_t s = 0; s < store->size(); ++s) {
    const TokenSample sample = store->sample(s);
    TEMPER_CHECK(sample.length() > 0 && sample.length() <= store->longest()) << sample.length();
    tokens += sample.length();
    for (int64_t begin = 0, end = 0; begin < sample.length(); begin = end) {
      end = sample.PartEnd(begin);
      TEMPER_CHECK(end > begin && end <= sample.length()) << begin << " to " << end;
    }
    for (int64_t i = 0; i < sample.length(); ++i) {
      TEMPER_CHECK(check == TokenStore::Check::kBorders || sample.token(i) < kVocab) << sample.token(i);
      if (sample.supervised(i)) (void)sample.weight(i);
    }
  }
  TEMPER_CHECK(tokens == store->total_tokens()) << tokens;
  return 0;
}

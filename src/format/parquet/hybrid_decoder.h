// HybridDecoder: Parquet's runs of equal numbers mixed with packed ones (its encoding RLE), for levels and the indices
// of dictionaries. UnpackBits: a number of some bits anywhere in a text. Neither reads beyond the bytes. One thread at
// a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace temper {

// `width` bits (at most 64) from bit `bit` on, the lowest bit of a byte first. Bits behind the end are 0.
inline uint64_t UnpackBits(std::string_view bytes, size_t bit, int width) {
  const size_t byte = bit / 8;
  const int shift = static_cast<int>(bit % 8);
  uint64_t low = 0, high = 0;
  if (byte + 9 <= bytes.size()) {
    std::memcpy(&low, bytes.data() + byte, 8);
    high = static_cast<uint8_t>(bytes[byte + 8]);
  } else if (byte < bytes.size()) {
    std::memcpy(&low, bytes.data() + byte, std::min<size_t>(8, bytes.size() - byte));
  }
  const uint64_t word = shift == 0 ? low : low >> shift | high << (64 - shift);
  return width == 64 ? word : word & ((uint64_t{1} << width) - 1);
}

class HybridDecoder {
 public:
  static constexpr int kMaxWidth = 32;

  HybridDecoder() = default;
  // REQUIRES: width <= kMaxWidth.
  HybridDecoder(std::string_view bytes, int width) : bytes_(bytes), width_(width) {}

  // Writes up to n numbers and returns how many: fewer than n only where the bytes end or are broken. The last packed
  // ones may be padding.
  template <class T>
  size_t Decode(size_t n, T* out) {
    size_t done = 0;
    while (done < n) {
      if (equal_ == 0 && packed_ == 0 && !NextRun()) break;
      if (equal_ > 0) {
        const size_t count = std::min(n - done, equal_);
        std::fill_n(out + done, count, static_cast<T>(value_));
        equal_ -= count;
        done += count;
      } else {
        const size_t count = std::min(n - done, packed_);
        for (size_t i = 0; i < count; ++i, bit_ += static_cast<size_t>(width_)) {
          out[done + i] = static_cast<T>(UnpackBits(bytes_, bit_, width_));
        }
        packed_ -= count;
        done += count;
        if (packed_ == 0) at_ = (bit_ + 7) / 8;
      }
    }
    return done;
  }

 private:
  bool NextRun() {
    for (;;) {
      uint64_t head = 0;
      for (int shift = 0;; shift += 7) {
        if (shift > 35 || at_ >= bytes_.size()) return false;
        const auto byte = static_cast<uint8_t>(bytes_[at_++]);
        head |= static_cast<uint64_t>(byte & 127) << shift;
        if (byte < 128) break;
      }
      if ((head & 1) == 0) {
        const size_t width = static_cast<size_t>(width_ + 7) / 8;
        if (width > bytes_.size() - at_) return false;
        value_ = static_cast<uint32_t>(UnpackBits(bytes_.substr(at_, width), 0, kMaxWidth));
        at_ += width;
        equal_ = head >> 1;
      } else {
        // Groups of 8; the last group of a page may be cut off behind what is needed.
        bit_ = at_ * 8;
        packed_ = (head >> 1) * 8;
        if (width_ > 0) packed_ = std::min(packed_, (bytes_.size() - at_) * 8 / static_cast<size_t>(width_));
      }
      if (equal_ > 0 || packed_ > 0) return true;
    }
  }

  std::string_view bytes_;
  int width_ = 0;
  size_t at_ = 0;                  // of the next run
  size_t equal_ = 0, packed_ = 0;  // left of the current run
  size_t bit_ = 0;                 // of the next packed number
  uint32_t value_ = 0;             // of a run of equal numbers
};

}  // namespace temper

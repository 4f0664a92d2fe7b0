// DeltaDecoder: integers as differences, in blocks of packed numbers (Parquet's encoding DELTA_BINARY_PACKED). Never
// reads beyond the bytes. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "format/parquet/hybrid_decoder.h"

namespace temper {

class DeltaDecoder {
 public:
  // Nothing if the head is damaged, or counts more than `most` numbers.
  static std::optional<DeltaDecoder> Make(std::string_view bytes, size_t most) {
    DeltaDecoder decoder(bytes);
    uint64_t block = 0, parts = 0, count = 0;
    if (!decoder.Varint(block) || !decoder.Varint(parts) || !decoder.Varint(count)) return std::nullopt;
    if (!decoder.Zigzag(decoder.value_)) return std::nullopt;
    if (parts == 0 || block > kMostBlock || block % parts != 0 || block / parts % 8 != 0 || block == 0 ||
        count > most) {
      return std::nullopt;
    }
    decoder.parts_ = parts;
    decoder.part_size_ = block / parts;
    decoder.part_ = parts;  // a block follows
    decoder.left_ = count;
    return decoder;
  }

  // False after the last number, or where the bytes end.
  bool Next(int64_t& value) {
    if (left_ == 0) return false;
    if (!begun_) {
      begun_ = true;
    } else {
      if (part_left_ == 0 && !NextPart()) return false;
      // Sums wrap, as those of the writer.
      value_ += static_cast<uint64_t>(least_) + UnpackBits(bytes_, bit_, width_);
      bit_ += static_cast<size_t>(width_);
      --part_left_;
    }
    --left_;
    value = static_cast<int64_t>(value_);
    return true;
  }

  // Where the bytes of all numbers end; nothing if they end beyond all bytes. REQUIRES: Next was not called.
  std::optional<size_t> FindEnd() const {
    DeltaDecoder rest = *this;
    for (uint64_t left = left_ > 0 ? left_ - 1 : 0; left > 0; left -= std::min<uint64_t>(left, part_size_)) {
      if (!rest.NextPart()) return std::nullopt;
    }
    return rest.at_;
  }

 private:
  static constexpr uint64_t kMostBlock = 1 << 20;
  static constexpr int kMostBits = 64;

  explicit DeltaDecoder(std::string_view bytes) : bytes_(bytes) {}

  bool Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  bool Zigzag(uint64_t& value) {
    if (!Varint(value)) return false;
    value = (value >> 1) ^ (uint64_t{0} - (value & 1));
    return true;
  }
  // Begins the next part of a block; widths of parts that are not needed may be anything.
  bool NextPart() {
    if (part_ == parts_) {
      if (!Zigzag(least_) || parts_ > bytes_.size() - at_) return false;
      widths_ = at_;
      at_ += parts_;
      part_ = 0;
    }
    width_ = static_cast<uint8_t>(bytes_[widths_ + part_++]);
    if (width_ > kMostBits) return false;
    const size_t size = part_size_ / 8 * static_cast<size_t>(width_);
    if (size > bytes_.size() - at_) return false;
    bit_ = at_ * 8;
    at_ += size;
    part_left_ = part_size_;
    return true;
  }

  std::string_view bytes_;
  size_t at_ = 0;  // behind the current part
  uint64_t parts_ = 0, part_size_ = 0;
  uint64_t left_ = 0;                  // numbers
  uint64_t part_ = 0, part_left_ = 0;  // the next part of the block; numbers left of the current one
  size_t widths_ = 0, bit_ = 0;
  int width_ = 0;
  uint64_t least_ = 0, value_ = 0;
  bool begun_ = false;
};

}  // namespace temper

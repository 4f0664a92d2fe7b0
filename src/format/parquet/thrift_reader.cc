#include "format/parquet/thrift_reader.h"

namespace temper {

bool ThriftReader::Enter() {
  if (depth_ == kMaxDepth) Break();
  if (!ok()) return false;
  ++depth_;
  return true;
}

uint8_t ThriftReader::Byte() {
  if (at_ == bytes_.size()) CutOff();
  return ok() ? static_cast<uint8_t>(bytes_[at_++]) : 0;
}

uint64_t ThriftReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = Byte();
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return ok() ? value : 0;
  }
  Break();
  return 0;
}

int64_t ThriftReader::Zigzag() {
  const uint64_t value = Varint();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

int64_t ThriftReader::Int(ThriftType type) {
  switch (type) {
    case ThriftType::kByte:
      return static_cast<int8_t>(Byte());
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      return Zigzag();
    default:
      Break();
      return 0;
  }
}

bool ThriftReader::Bool(ThriftType type) {
  if (type != ThriftType::kTrue && type != ThriftType::kFalse) Break();
  return type == ThriftType::kTrue;
}

std::string_view ThriftReader::Binary(ThriftType type) {
  if (type != ThriftType::kBinary) Break();
  const uint64_t size = Varint();
  const size_t begin = at_;
  SkipBytes(size);
  return ok() ? bytes_.substr(begin, size) : std::string_view();
}

void ThriftReader::SkipBytes(uint64_t n) {
  if (n > bytes_.size() - at_) CutOff();
  if (ok()) at_ += n;
}

// A bool in a list takes a byte; in a field its type says all.
void ThriftReader::SkipValue(ThriftType type, bool element) {
  switch (type) {
    case ThriftType::kTrue:
    case ThriftType::kFalse:
      if (element) Byte();
      return;
    case ThriftType::kByte:
      Byte();
      return;
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      Varint();
      return;
    case ThriftType::kDouble:
      return SkipBytes(8);
    case ThriftType::kBinary:
      Binary(type);
      return;
    case ThriftType::kList:
    case ThriftType::kSet:
      return List(type, [this](ThriftType of) { SkipValue(of, /*element=*/true); });
    case ThriftType::kMap: {
      const uint64_t size = Varint();
      if (size == 0 || !Enter()) return;
      const uint8_t types = Byte();
      if (size > bytes_.size() - at_) CutOff();
      for (uint64_t i = 0; ok() && i < size; ++i) {
        SkipValue(static_cast<ThriftType>(types >> 4), /*element=*/true);
        SkipValue(static_cast<ThriftType>(types & 15), /*element=*/true);
      }
      --depth_;
      return;
    }
    case ThriftType::kStruct:
      return Struct([this](int, ThriftType of) { Skip(of); });
    default:
      return Break();
  }
}

}  // namespace temper

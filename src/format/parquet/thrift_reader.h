// ThriftReader: reads a value in Thrift's compact protocol, in which Parquet writes its footer and its pages' headers.
//
//   ThriftReader in(bytes);
//   in.Struct([&](int id, ThriftType type) { id == 1 ? rows = in.Int(type) : in.Skip(type); });
//   if (!in.ok()) ...
//
// The first fault is kept: after it every read gives 0 or nothing, and structs and lists end. Nothing is allocated, and
// a list has no more elements than bytes are left. Source: thrift/doc/specs/thrift-compact-protocol.md. One thread at a
// time.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

enum class ThriftType : uint8_t {
  kStop = 0,
  kTrue = 1,  // a field that is a bool has its value in its type
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return fault_ == Fault::kNone; }
  bool cut_off() const { return fault_ == Fault::kCutOff; }  // more bytes may make it whole
  size_t position() const { return at_; }

  // Calls on_field(int id, ThriftType) for each field, which reads the value or skips it.
  template <class OnField>
  void Struct(OnField&& on_field) {
    if (!Enter()) return;
    int id = 0;
    for (;;) {
      const uint8_t head = Byte();
      if (!ok() || head == 0) break;
      const int delta = head >> 4;
      id = delta != 0 ? id + delta : static_cast<int>(Zigzag());
      if ((head & 15) > static_cast<int>(ThriftType::kStruct)) Break();
      if (!ok()) break;
      on_field(id, static_cast<ThriftType>(head & 15));
    }
    --depth_;
  }
  // As a field of `type`; another type than a struct is a fault.
  template <class OnField>
  void Struct(ThriftType type, OnField&& on_field) {
    if (type == ThriftType::kStruct) {
      Struct(on_field);
    } else {
      Break();
    }
  }
  // Calls on_element(ThriftType) for each, which reads or skips it.
  template <class OnElement>
  void List(ThriftType type, OnElement&& on_element) {
    if (type != ThriftType::kList && type != ThriftType::kSet) return Break();
    if (!Enter()) return;
    const uint8_t head = Byte();
    const uint64_t size = (head >> 4) == 15 ? Varint() : head >> 4;
    if (size > bytes_.size() - at_) CutOff();
    if ((head & 15) > static_cast<int>(ThriftType::kStruct) || ((head & 15) == 0 && size > 0)) Break();
    for (uint64_t i = 0; ok() && i < size; ++i) on_element(static_cast<ThriftType>(head & 15));
    --depth_;
  }
  int64_t Int(ThriftType type);  // of any width
  bool Bool(ThriftType type);    // of a field
  std::string_view Binary(ThriftType type);
  void Skip(ThriftType type) { SkipValue(type, /*element=*/false); }

 private:
  enum class Fault : uint8_t { kNone, kCutOff, kBroken };
  static constexpr int kMaxDepth = 32;  // Parquet's own structures have 6 levels

  uint8_t Byte();
  uint64_t Varint();
  int64_t Zigzag();
  void SkipValue(ThriftType type, bool element);
  void SkipBytes(uint64_t n);
  bool Enter();
  void Break() { fault_ = ok() ? Fault::kBroken : fault_; }
  void CutOff() { fault_ = ok() ? Fault::kCutOff : fault_; }

  const std::string_view bytes_;
  size_t at_ = 0;
  int depth_ = 0;
  Fault fault_ = Fault::kNone;
};

}  // namespace temper

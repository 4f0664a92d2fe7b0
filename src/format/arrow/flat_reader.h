// FlatReader: tables of a flatbuffer, in which Arrow writes the headers of its messages. Nothing is read beyond the
// bytes: the first fault is kept, and what is asked for then is empty. Source: flatbuffers' internals.md. One thread at
// a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace temper {

// A place in the bytes: a table. A field is a number, in the order of the schema.
struct FlatTable {
  size_t at = 0;
};

struct FlatVector {
  size_t at = 0;  // of its first element
  size_t count = 0;
};

class FlatReader {
 public:
  explicit FlatReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  FlatTable Root() { return {Follow(0)}; }

  template <class T>
  T Scalar(FlatTable table, int field, T fallback) {
    const size_t at = FieldAt(table, field);
    return at == 0 ? fallback : Load<T>(at);
  }
  std::optional<FlatTable> Table(FlatTable table, int field) {
    const size_t at = FieldAt(table, field);
    if (at == 0) return std::nullopt;
    return FlatTable{Follow(at)};
  }
  std::string_view Text(FlatTable table, int field) {
    const FlatVector text = Vector(table, field, 1);
    return bytes_.substr(text.at, text.count);
  }
  // Of elements of `size` bytes; empty if it is not there.
  FlatVector Vector(FlatTable table, int field, size_t size) {
    const size_t field_at = FieldAt(table, field);
    if (field_at == 0) return {};
    const size_t at = Follow(field_at), count = Load<uint32_t>(at);
    if (!ok_ || count > (bytes_.size() - at - sizeof(uint32_t)) / size) {
      ok_ = false;
      return {};
    }
    return {at + sizeof(uint32_t), count};
  }
  FlatTable TableOf(const FlatVector& vector, size_t i) { return {Follow(vector.at + i * sizeof(uint32_t))}; }

  // The number at a byte.
  template <class T>
  T Load(size_t at) {
    T value = 0;
    if (at > bytes_.size() || bytes_.size() - at < sizeof value) {
      ok_ = false;
    } else {
      std::memcpy(&value, bytes_.data() + at, sizeof value);
    }
    return value;
  }

 private:
  size_t Follow(size_t at) { return at + Load<uint32_t>(at); }
  // 0: the table does not have it.
  size_t FieldAt(FlatTable table, int field) {
    const int64_t fields = static_cast<int64_t>(table.at) - Load<int32_t>(table.at);
    const size_t place = 4 + 2 * static_cast<size_t>(field);
    if (fields < 0) ok_ = false;
    if (!ok_ || Load<uint16_t>(static_cast<size_t>(fields)) < place + 2) return 0;
    const size_t offset = Load<uint16_t>(static_cast<size_t>(fields) + place);
    return offset == 0 ? 0 : table.at + offset;
  }

  const std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace temper

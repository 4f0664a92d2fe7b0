#include "format/gguf/gguf_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/utf8.h"
#include "format/quoted.h"

namespace temper {
namespace {

// The largest known header, of 200,000 tokens and 450,000 merges, has 12 MB.
constexpr int64_t kLongestHeader = 32 << 20;
constexpr int64_t kMaxStrings = 3 << 19, kMaxNumbers = 1 << 23;  // of all lists
constexpr uint64_t kMaxKeys = 10'000, kMaxTensors = 100'000;     // real files have less than 100, and 10,000
constexpr int64_t kLongestKey = 65535, kLongestTensorName = 256, kMostDims = 4;
constexpr int64_t kWindow = 1 << 20;

// gguf.md, enum gguf_metadata_value_type.
enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// Bytes of a value; 0: it has no fixed size, or there is no such type.
int64_t BytesOfValue(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

// Reads numbers and strings one after another, through a window of the file.
class Cursor {
 public:
  explicit Cursor(const RandomAccessFile& file)
      : file_(file),
        end_(std::min<int64_t>(file.size().v, kLongestHeader)),
        ends_with_file_(file.size().v <= kLongestHeader) {}

  int64_t at() const { return at_; }
  int64_t left() const { return end_ - at_; }

  Status Bytes(std::span<char> out) {
    if (std::ssize(out) > left()) {
      if (ends_with_file_) return Corrupt(file_.path() + " is truncated in its header; fetch or copy the file again");
      return TooLong();
    }
    for (size_t done = 0; done < out.size();) {
      if (at_ < window_begin_ || at_ >= window_begin_ + std::ssize(window_)) {
        window_begin_ = at_;
        window_.resize(static_cast<size_t>(std::min(kWindow, end_ - at_)));
        TEMPER_RETURN_IF_ERROR(file_.ReadAt(at_, std::as_writable_bytes(std::span(window_))));
      }
      const auto from = static_cast<size_t>(at_ - window_begin_);
      const size_t n = std::min(out.size() - done, window_.size() - from);
      std::memcpy(out.data() + done, window_.data() + from, n);
      done += n;
      at_ += static_cast<int64_t>(n);
    }
    return OkStatus();
  }

  template <class T>
  Result<T> Number() {
    char bytes[sizeof(T)];
    TEMPER_RETURN_IF_ERROR(Bytes(bytes));
    return std::bit_cast<T>(bytes);
  }

  // At most `most` bytes.
  Result<std::string> String(int64_t most, const char* what) {
    TEMPER_ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>());
    const bool beyond = static_cast<int64_t>(std::min<uint64_t>(size, kLongestHeader)) > left();
    if (beyond && !ends_with_file_ && size <= static_cast<uint64_t>(most)) return TooLong();
    if (beyond || size > static_cast<uint64_t>(most)) {
      return Corrupt(fmt::format("{}: {} of {} bytes at byte {} of its header; fetch or copy the file again",
                                 file_.path(), what, size, at_));
    }
    std::string text(size, '\0');
    TEMPER_RETURN_IF_ERROR(Bytes(text));
    return text;
  }

 private:
  Status TooLong() const {
    return Unsupported(fmt::format("{}: its header has more than {} bytes", file_.path(), kLongestHeader));
  }

  const RandomAccessFile& file_;
  const int64_t end_;
  const bool ends_with_file_;  // whether end_ is the file's
  int64_t at_ = 0;
  int64_t window_begin_ = 0;
  std::string window_;
};

// A number of any type as the value that metadata has for it.
struct Scalar {
  enum Kind { kNone, kUnsigned, kSigned, kFloat, kTruth } kind = kNone;
  uint32_t as_unsigned = 0;
  int32_t as_signed = 0;
  float as_float = 0;
  bool as_bool = false;
};

Result<Scalar> ReadScalar(Cursor& in, uint32_t type) {
  char bytes[8] = {};
  const auto width = static_cast<size_t>(BytesOfValue(type));
  TEMPER_RETURN_IF_ERROR(in.Bytes(std::span(bytes).first(width)));
  const auto bits = std::bit_cast<uint64_t>(bytes);
  Scalar s;
  const auto of_signed = [&](int64_t x) {
    if (x < std::numeric_limits<int32_t>::min() || x > std::numeric_limits<int32_t>::max()) return;
    s.kind = Scalar::kSigned;
    s.as_signed = static_cast<int32_t>(x);
  };
  switch (type) {
    case kU8:
    case kU16:
    case kU32:
    case kU64:
      if (bits > std::numeric_limits<uint32_t>::max()) break;
      s.kind = Scalar::kUnsigned;
      s.as_unsigned = static_cast<uint32_t>(bits);
      break;
    case kI8:
      of_signed(static_cast<int8_t>(bits));
      break;
    case kI16:
      of_signed(static_cast<int16_t>(bits));
      break;
    case kI32:
      of_signed(static_cast<int32_t>(bits));
      break;
    case kI64:
      of_signed(static_cast<int64_t>(bits));
      break;
    case kBool:
      s.kind = Scalar::kTruth;
      s.as_bool = bits != 0;
      break;
    case kF32:
      s.kind = Scalar::kFloat;
      s.as_float = std::bit_cast<float>(static_cast<uint32_t>(bits));
      break;
    case kF64:
      s.kind = Scalar::kFloat;
      s.as_float = static_cast<float>(std::bit_cast<double>(bits));
      break;
    default:
      break;
  }
  return s;
}

class HeaderReader {
 public:
  explicit HeaderReader(const RandomAccessFile& file) : file_(file), in_(file) {}

  Result<GgufHeader> Run() {
    TEMPER_ASSIGN_OR_RETURN(const uint32_t magic, in_.Number<uint32_t>());
    TEMPER_ASSIGN_OR_RETURN(const uint32_t version, in_.Number<uint32_t>());
    const bool is_gguf = IsGgufMagic(std::as_bytes(std::span<const uint32_t, 1>(&magic, 1)));
    if (!is_gguf) return Corrupt(file_.path() + " does not begin as a GGUF file");
    if (version != 2 && version != 3) {
      const bool big = version == 2u << 24 || version == 3u << 24;
      return Unsupported(big ? file_.path() + " is big-endian: convert it on a little-endian machine"
                             : fmt::format("{} is of version {} of GGUF; 2 and 3 are read", file_.path(), version));
    }
    TEMPER_ASSIGN_OR_RETURN(const uint64_t tensors, in_.Number<uint64_t>());
    TEMPER_ASSIGN_OR_RETURN(const uint64_t pairs, in_.Number<uint64_t>());
    // A tensor takes 32 bytes at least, a pair 13.
    if (tensors > static_cast<uint64_t>(in_.left()) / 32 || pairs > static_cast<uint64_t>(in_.left()) / 13) {
      return Corrupt(fmt::format("{}: its header cannot hold {} tensors and {} keys; fetch or copy the file again",
                                 file_.path(), tensors, pairs));
    }
    if (tensors > kMaxTensors || pairs > kMaxKeys) {
      return Unsupported(fmt::format("{}: {} tensors and {} keys; up to {} and {} are read", file_.path(), tensors,
                                     pairs, kMaxTensors, kMaxKeys));
    }
    std::set<std::string> keys;
    for (uint64_t i = 0; i < pairs; ++i) {
      TEMPER_ASSIGN_OR_RETURN(std::string key, in_.String(kLongestKey, "a key"));
      if (!utf8::IsValid(key) || !keys.insert(key).second) {
        return Corrupt(fmt::format("{}: the key {} is not UTF-8 or stands twice", file_.path(), Quoted(key)));
      }
      TEMPER_RETURN_IF_ERROR(ReadValue(key));
    }
    for (uint64_t i = 0; i < tensors; ++i) TEMPER_RETURN_IF_ERROR(ReadTensor());
    TEMPER_RETURN_IF_ERROR(Align());
    return std::move(header_);
  }

 private:
  Status ReadValue(const std::string& key) {
    TEMPER_ASSIGN_OR_RETURN(const uint32_t type, in_.Number<uint32_t>());
    if (type == kString) {
      TEMPER_ASSIGN_OR_RETURN(std::string text, in_.String(kLongestHeader, "a text"));
      header_.metadata.Set(key, std::move(text));
      return OkStatus();
    }
    if (type == kArray) return ReadArray(key);
    if (BytesOfValue(type) == 0) return NoSuchType(key, type);
    TEMPER_ASSIGN_OR_RETURN(const Scalar s, ReadScalar(in_, type));
    switch (s.kind) {
      case Scalar::kUnsigned:
        header_.metadata.Set(key, s.as_unsigned);
        break;
      case Scalar::kSigned:
        header_.metadata.Set(key, s.as_signed);
        break;
      case Scalar::kFloat:
        header_.metadata.Set(key, s.as_float);
        break;
      case Scalar::kTruth:
        header_.metadata.Set(key, s.as_bool);
        break;
      case Scalar::kNone:
        break;
    }
    return OkStatus();
  }

  Status NoSuchType(const std::string& key, uint32_t type) const {
    return Corrupt(
        fmt::format("{}: the value of {} is of type {}, which GGUF does not have", file_.path(), Quoted(key), type));
  }

  Status ReadArray(const std::string& key) {
    TEMPER_ASSIGN_OR_RETURN(const uint32_t type, in_.Number<uint32_t>());
    TEMPER_ASSIGN_OR_RETURN(const uint64_t count, in_.Number<uint64_t>());
    if (type == kArray) return Unsupported(fmt::format("{}: {} is a list of lists", file_.path(), Quoted(key)));
    const int64_t width = type == kString ? 8 : BytesOfValue(type);
    if (width == 0) return NoSuchType(key, type);
    if (count > static_cast<uint64_t>(in_.left() / width)) {
      return Corrupt(fmt::format("{}: {} would have {} elements, more than the file; fetch or copy the file again",
                                 file_.path(), Quoted(key), count));
    }
    const auto n = static_cast<int64_t>(count);
    if (type == kString) {
      strings_ += n;
      if (strings_ > kMaxStrings) {
        return Unsupported(fmt::format("{}: more than {} texts in its lists", file_.path(), kMaxStrings));
      }
      std::vector<std::string> texts;
      texts.reserve(count);
      for (int64_t i = 0; i < n; ++i) {
        TEMPER_ASSIGN_OR_RETURN(std::string text, in_.String(kLongestHeader, "a text"));
        texts.push_back(std::move(text));
      }
      header_.metadata.Set(key, std::move(texts));
      return OkStatus();
    }
    numbers_ += n;
    if (numbers_ > kMaxNumbers) {
      return Unsupported(fmt::format("{}: more than {} numbers in its lists", file_.path(), kMaxNumbers));
    }
    if (type == kF32 || type == kF64) {
      std::vector<float> numbers(count);
      for (float& x : numbers) {
        TEMPER_ASSIGN_OR_RETURN(const Scalar s, ReadScalar(in_, type));
        x = s.as_float;
      }
      header_.metadata.Set(key, std::move(numbers));
    } else if (type == kBool) {
      std::vector<bool> flags(count);
      for (int64_t i = 0; i < n; ++i) {
        TEMPER_ASSIGN_OR_RETURN(const Scalar s, ReadScalar(in_, type));
        flags[static_cast<size_t>(i)] = s.as_bool;
      }
      header_.metadata.Set(key, std::move(flags));
    } else {
      std::vector<int32_t> numbers(count);
      bool fits = true;
      for (int32_t& x : numbers) {
        TEMPER_ASSIGN_OR_RETURN(const Scalar s, ReadScalar(in_, type));
        fits = fits && s.kind != Scalar::kNone && s.as_unsigned <= uint32_t{std::numeric_limits<int32_t>::max()};
        x = s.kind == Scalar::kSigned ? s.as_signed : static_cast<int32_t>(s.as_unsigned);
      }
      if (fits) header_.metadata.Set(key, std::move(numbers));
    }
    return OkStatus();
  }

  Status ReadTensor() {
    GgufEntry t;
    TEMPER_ASSIGN_OR_RETURN(t.name, in_.String(kLongestTensorName, "a tensor's name"));
    const auto damaged = [&](const std::string& what) {
      return Corrupt(fmt::format("{}: tensor {} {}; fetch or copy the file again", file_.path(), Quoted(t.name), what));
    };
    if (!utf8::IsValid(t.name) || t.name.empty()) return damaged("has no name in UTF-8");
    if (!names_.insert(t.name).second) return damaged("stands twice");
    TEMPER_ASSIGN_OR_RETURN(const uint32_t rank, in_.Number<uint32_t>());
    if (rank > kMostDims) return damaged(fmt::format("has {} dimensions", rank));
    int64_t product = 1;  // of the dims that are not 0, so that no order of multiplying them overflows
    for (uint32_t d = 0; d < rank; ++d) {
      TEMPER_ASSIGN_OR_RETURN(const uint64_t dim, in_.Number<uint64_t>());
      // In bytes it must fit, too.
      if (dim > uint64_t{1} << 56 ||
          __builtin_mul_overflow(product, std::max<int64_t>(1, static_cast<int64_t>(dim)), &product) ||
          product > int64_t{1} << 56) {
        return damaged("is larger than any file");
      }
      t.dims.insert(t.dims.begin(), static_cast<int64_t>(dim));
    }
    TEMPER_ASSIGN_OR_RETURN(t.type, in_.Number<uint32_t>());
    TEMPER_ASSIGN_OR_RETURN(const uint64_t begin, in_.Number<uint64_t>());
    if (begin > uint64_t{1} << 56) return damaged(fmt::format("begins at byte {}", begin));
    t.begin = static_cast<int64_t>(begin);
    header_.tensors.push_back(std::move(t));
    return OkStatus();
  }

  Status Align() {
    int64_t alignment = 32;
    if (const GgufValue* const value = header_.metadata.Find("general.alignment"); value != nullptr) {
      const auto* const said = std::get_if<uint32_t>(value);
      if (said == nullptr || *said == 0 || *said > 1 << 20 || *said % 8 != 0) {
        return Corrupt(file_.path() + ": general.alignment is no multiple of 8");
      }
      alignment = *said;
    }
    header_.data_begin = (in_.at() + alignment - 1) / alignment * alignment;
    for (const GgufEntry& t : header_.tensors) {
      if (t.begin % alignment == 0) continue;
      return Corrupt(fmt::format("{}: tensor {} begins at byte {}, no multiple of {}", file_.path(), Quoted(t.name),
                                 t.begin, alignment));
    }
    return OkStatus();
  }

  const RandomAccessFile& file_;
  Cursor in_;
  GgufHeader header_;
  std::set<std::string> names_;
  int64_t strings_ = 0, numbers_ = 0;
};

}  // namespace

bool IsGgufMagic(std::span<const std::byte, 4> head) {
  return std::memcmp(head.data(), "GGUF", 4) == 0;
}

Result<GgufHeader> ReadGgufHeader(const RandomAccessFile& file) {
  return HeaderReader(file).Run();
}

}  // namespace temper

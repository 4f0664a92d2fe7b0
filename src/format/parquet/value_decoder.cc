#include "format/parquet/value_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "format/parquet/delta_decoder.h"
#include "format/parquet/hybrid_decoder.h"

namespace temper {
namespace {

// parquet.thrift
enum ParquetEncoding : int64_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

constexpr size_t kMostArena = 1 << 20;

const char* StorageName(ParquetStorage storage) {
  switch (storage) {
    case ParquetStorage::kBool:
      return "BOOLEAN";
    case ParquetStorage::kInt32:
      return "INT32";
    case ParquetStorage::kInt64:
      return "INT64";
    case ParquetStorage::kInt96:
      return "INT96";
    case ParquetStorage::kFloat:
      return "FLOAT";
    case ParquetStorage::kDouble:
      return "DOUBLE";
    case ParquetStorage::kBytes:
      return "BYTE_ARRAY";
    case ParquetStorage::kFixedBytes:
      return "FIXED_LEN_BYTE_ARRAY";
  }
  return "";
}

// Bytes of a value; 0: they differ.
size_t WidthOf(const ParquetType& type) {
  switch (type.storage) {
    case ParquetStorage::kInt32:
    case ParquetStorage::kFloat:
      return 4;
    case ParquetStorage::kInt64:
    case ParquetStorage::kDouble:
      return 8;
    case ParquetStorage::kInt96:
      return 12;
    case ParquetStorage::kFixedBytes:
      return static_cast<size_t>(type.width);
    case ParquetStorage::kBool:
    case ParquetStorage::kBytes:
      break;
  }
  return 0;
}

template <class T>
T LoadAs(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A value of WidthOf(type) bytes.
void AppendFixed(const ParquetType& type, const char* from, ParquetValues& out) {
  switch (type.storage) {
    case ParquetStorage::kInt32:
      out.ints.push_back(LoadAs<int32_t>(from));
      break;
    case ParquetStorage::kInt64:
      out.ints.push_back(LoadAs<int64_t>(from));
      break;
    case ParquetStorage::kFloat:
      out.numbers.push_back(LoadAs<float>(from));
      break;
    case ParquetStorage::kDouble:
      out.numbers.push_back(LoadAs<double>(from));
      break;
    default:
      out.texts.emplace_back(from, WidthOf(type));
  }
}

class PlainFixed final : public ValueDecoder {
 public:
  PlainFixed(const ParquetType& type, std::string_view bytes) : type_(type), bytes_(bytes) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    const size_t width = WidthOf(type_);
    n = std::min(n, bytes_.size() / width);
    for (size_t i = 0; i < n; ++i) AppendFixed(type_, bytes_.data() + i * width, out);
    bytes_.remove_prefix(n * width);
    return n;
  }

 private:
  const ParquetType type_;
  std::string_view bytes_;
};

class PlainBools final : public ValueDecoder {
 public:
  explicit PlainBools(std::string_view bytes) : bytes_(bytes) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    n = std::min(n, bytes_.size() * 8 - at_);
    for (size_t i = 0; i < n; ++i, ++at_) out.ints.push_back(bytes_[at_ / 8] >> (at_ % 8) & 1);
    return n;
  }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
};

class PlainTexts final : public ValueDecoder {
 public:
  explicit PlainTexts(std::string_view bytes) : bytes_(bytes) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    size_t done = 0;
    for (; done < n && bytes_.size() >= sizeof(uint32_t); ++done) {
      const size_t size = LoadAs<uint32_t>(bytes_.data());
      if (size > bytes_.size() - sizeof(uint32_t)) break;
      out.texts.push_back(bytes_.substr(sizeof(uint32_t), size));
      bytes_.remove_prefix(sizeof(uint32_t) + size);
    }
    return done;
  }

 private:
  std::string_view bytes_;
};

class RleBools final : public ValueDecoder {
 public:
  explicit RleBools(std::string_view bytes) : runs_(bytes, /*width=*/1) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    out.ints.resize(n);
    n = runs_.Decode(n, out.ints.data());
    out.ints.resize(n);
    return n;
  }

 private:
  HybridDecoder runs_;
};

class DictionaryValues final : public ValueDecoder {
 public:
  DictionaryValues(HybridDecoder indices, const ParquetValues& dictionary)
      : indices_(indices), dictionary_(dictionary) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    chosen_.resize(n);
    n = indices_.Decode(n, chosen_.data());
    const size_t all = Take(dictionary_.ints, n, out.ints) + Take(dictionary_.numbers, n, out.numbers);
    return all + Take(dictionary_.texts, n, out.texts);
  }

 private:
  // Up to the first index that the dictionary lacks, which may be padding.
  template <class T>
  size_t Take(const std::vector<T>& from, size_t n, std::vector<T>& to) const {
    for (size_t i = 0; i < n; ++i) {
      if (chosen_[i] >= from.size()) return i;
      to.push_back(from[chosen_[i]]);
    }
    return n;
  }

  HybridDecoder indices_;
  const ParquetValues& dictionary_;
  std::vector<uint32_t> chosen_;
};

class DeltaInts final : public ValueDecoder {
 public:
  DeltaInts(DeltaDecoder deltas, bool narrow) : deltas_(deltas), narrow_(narrow) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    size_t done = 0;
    for (int64_t value; done < n && deltas_.Next(value); ++done) {
      out.ints.push_back(narrow_ ? static_cast<int32_t>(value) : value);
    }
    return done;
  }

 private:
  DeltaDecoder deltas_;
  const bool narrow_;  // 32 bits, in which sums wrap
};

// Lengths, then the bytes of all values.
class DeltaLengthTexts {
 public:
  DeltaLengthTexts(DeltaDecoder lengths, std::string_view bytes) : lengths_(lengths), bytes_(bytes) {}
  bool Next(std::string_view& text) {
    int64_t length = 0;
    if (!lengths_.Next(length) || length < 0 || static_cast<size_t>(length) > bytes_.size()) return false;
    text = bytes_.substr(0, static_cast<size_t>(length));
    bytes_.remove_prefix(text.size());
    return true;
  }

 private:
  DeltaDecoder lengths_;
  std::string_view bytes_;
};

class DeltaLengthValues final : public ValueDecoder {
 public:
  explicit DeltaLengthValues(DeltaLengthTexts texts) : texts_(texts) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    size_t done = 0;
    for (std::string_view text; done < n && texts_.Next(text); ++done) out.texts.push_back(text);
    return done;
  }

 private:
  DeltaLengthTexts texts_;
};

// Each value as what it has in common with the one before, and the rest.
class DeltaTexts final : public ValueDecoder {
 public:
  // `width`: of each value; 0: any.
  DeltaTexts(DeltaDecoder prefixes, DeltaLengthTexts suffixes, size_t width)
      : prefixes_(prefixes), suffixes_(suffixes), width_(width) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    std::vector<size_t> ends;  // the arena moves while it grows
    while (ends.size() < n && (ends.empty() || out.arena.size() < kMostArena)) {
      int64_t prefix = 0;
      std::string_view suffix;
      if (!prefixes_.Next(prefix) || prefix < 0 || static_cast<size_t>(prefix) > last_.size()) break;
      if (!suffixes_.Next(suffix)) break;
      last_.resize(static_cast<size_t>(prefix));
      last_ += suffix;
      if (width_ != 0 && last_.size() != width_) break;
      out.arena += last_;
      ends.push_back(out.arena.size());
    }
    size_t begin = 0;
    for (const size_t end : ends) {
      out.texts.push_back(std::string_view(out.arena).substr(begin, end - begin));
      begin = end;
    }
    return ends.size();
  }

 private:
  DeltaDecoder prefixes_;
  DeltaLengthTexts suffixes_;
  const size_t width_;
  std::string last_;
};

// First the first byte of every value, then the second of every one, ...
class SplitValues final : public ValueDecoder {
 public:
  SplitValues(const ParquetType& type, std::string_view bytes)
      : type_(type), width_(WidthOf(type)), bytes_(bytes), count_(bytes.size() / width_) {}
  size_t Decode(size_t n, ParquetValues& out) override {
    n = std::min({n, count_ - at_, std::max<size_t>(1, kMostArena / width_)});
    out.arena.resize(n * width_);
    for (size_t i = 0; i < n; ++i) {
      for (size_t byte = 0; byte < width_; ++byte) out.arena[i * width_ + byte] = bytes_[byte * count_ + at_ + i];
    }
    at_ += n;
    for (size_t i = 0; i < n; ++i) AppendFixed(type_, out.arena.data() + i * width_, out);
    return n;
  }

 private:
  const ParquetType type_;
  const size_t width_;
  const std::string_view bytes_;
  const size_t count_;
  size_t at_ = 0;
};

using MadeDecoder = Result<std::unique_ptr<ValueDecoder>>;

template <class Decoder, class... Arguments>
MadeDecoder MakeA(Arguments&&... arguments) {
  return std::unique_ptr<ValueDecoder>(std::make_unique<Decoder>(std::forward<Arguments>(arguments)...));
}

MadeDecoder MakeDictionary(std::string_view bytes, const ParquetValues* dictionary) {
  if (dictionary == nullptr) return Corrupt("a page of indices into a dictionary, and there is none");
  if (bytes.empty()) return MakeA<DictionaryValues>(HybridDecoder(), *dictionary);
  const int width = static_cast<uint8_t>(bytes[0]);
  if (width > HybridDecoder::kMaxWidth) return Corrupt(fmt::format("indices of {} bits into a dictionary", width));
  return MakeA<DictionaryValues>(HybridDecoder(bytes.substr(1), width), *dictionary);
}

Status DamagedDeltas() {
  return Corrupt("the sizes of a page's deltas contradict each other");
}

// Lengths and bytes of a page in the encoding kDeltaLengthByteArray.
Result<DeltaLengthTexts> LengthsAndBytes(std::string_view bytes, size_t most) {
  auto lengths = DeltaDecoder::Make(bytes, most);
  const auto end = lengths ? lengths->FindEnd() : std::nullopt;
  if (!end) return DamagedDeltas();
  return DeltaLengthTexts(*lengths, bytes.substr(*end));
}

MadeDecoder MakeDeltaTexts(std::string_view bytes, size_t most, size_t width) {
  auto prefixes = DeltaDecoder::Make(bytes, most);
  const auto end = prefixes ? prefixes->FindEnd() : std::nullopt;
  if (!end) return DamagedDeltas();
  TEMPER_ASSIGN_OR_RETURN(const DeltaLengthTexts suffixes, LengthsAndBytes(bytes.substr(*end), most));
  return MakeA<DeltaTexts>(*prefixes, suffixes, width);
}

}  // namespace

Result<std::unique_ptr<ValueDecoder>> ValueDecoder::Make(int64_t encoding, const ParquetType& type,
                                                         std::string_view bytes, size_t most,
                                                         const ParquetValues* dictionary) {
  const ParquetStorage storage = type.storage;
  const bool integer = storage == ParquetStorage::kInt32 || storage == ParquetStorage::kInt64;
  switch (encoding) {
    case kPlain:
      if (storage == ParquetStorage::kBool) return MakeA<PlainBools>(bytes);
      if (storage == ParquetStorage::kBytes) return MakeA<PlainTexts>(bytes);
      return MakeA<PlainFixed>(type, bytes);
    case kPlainDictionary:
    case kRleDictionary:
      return MakeDictionary(bytes, dictionary);
    case kRle: {
      if (storage != ParquetStorage::kBool) break;
      const size_t size = bytes.size() < sizeof(uint32_t) ? 0 : LoadAs<uint32_t>(bytes.data());
      if (bytes.size() < sizeof(uint32_t) || size > bytes.size() - sizeof(uint32_t)) {
        return Corrupt("a page of runs ends before they do");
      }
      return MakeA<RleBools>(bytes.substr(sizeof(uint32_t), size));
    }
    case kDeltaBinaryPacked: {
      if (!integer) break;
      const auto deltas = DeltaDecoder::Make(bytes, most);
      if (!deltas) return DamagedDeltas();
      return MakeA<DeltaInts>(*deltas, storage == ParquetStorage::kInt32);
    }
    case kDeltaLengthByteArray: {
      if (storage != ParquetStorage::kBytes) break;
      TEMPER_ASSIGN_OR_RETURN(const DeltaLengthTexts texts, LengthsAndBytes(bytes, most));
      return MakeA<DeltaLengthValues>(texts);
    }
    case kDeltaByteArray:
      if (storage != ParquetStorage::kBytes && storage != ParquetStorage::kFixedBytes) break;
      return MakeDeltaTexts(bytes, most, static_cast<size_t>(type.width));
    case kByteStreamSplit:
      if (WidthOf(type) == 0 || storage == ParquetStorage::kInt96) break;
      return MakeA<SplitValues>(type, bytes);
    default:
      return Unsupported(fmt::format("values are in encoding {}{}, which is not read: write the file anew", encoding,
                                     encoding == kBitPacked ? " (BIT_PACKED)" : ""));
  }
  return Corrupt(
      fmt::format("values of type {} are in encoding {}, which is not for them", StorageName(storage), encoding));
}

}  // namespace temper

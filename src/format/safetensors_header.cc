#include "format/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read without swapping");

constexpr size_t kMaxRank = 64;  // numpy's and PyTorch's own limit
// Real files have a handful; 100 MB of tiny entries would take a gigabyte.
constexpr size_t kMaxMetadataEntries = 100'000;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<StoredDType, 22> kStoredDTypes = {{
    {"F32", 32, DType::kF32},
    {"BF16", 16, DType::kBF16},
    {"F16", 16, DType::kF16},
    {"F64", 64, DType::kF64},
    {"I32", 32, DType::kI32},
    {"I64", 64, DType::kI64},
    {"BOOL", 8, {}},
    {"U8", 8, DType::kU8},
    {"I8", 8, {}},
    {"U16", 16, {}},
    {"I16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
}};

std::string KnownDTypes() {
  std::vector<std::string_view> names;
  for (const StoredDType& t : kStoredDTypes) names.push_back(t.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Product of the non-zero dims in bits, or nullopt where it does not fit: so that no product of some of the dims, in
// whatever order, can overflow later.
std::optional<int64_t> BitsOfNonZeroDims(const StoredTensor& t) {
  int64_t bits = t.dtype->bits;
  for (int64_t d : t.dims) {
    if (d != 0 && __builtin_mul_overflow(bits, d, &bits)) return std::nullopt;
  }
  return bits;
}

// Receives the header's tokens one by one: no document is built, so a hostile header costs little more than its size.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  const Status& error() const { return error_; }

  bool null() override {
    if (state_ == State::kRoot && key_ == kMetadataKey) return true;
    return Scalar("null");
  }
  bool boolean(bool) override { return Scalar("true or false"); }
  bool number_integer(number_integer_t v) override {  // nlohmann's word for negative ones
    return Integer(static_cast<uint64_t>(v), /*negative=*/true, v);
  }
  bool number_unsigned(number_unsigned_t v) override { return Integer(v, /*negative=*/false, 0); }
  bool number_float(number_float_t, const string_t& text) override {
    if (state_ == State::kSkip) return true;
    return Fail(fmt::format("has {} in its {}, which is not a whole number", Quoted(text), Place()));
  }
  bool string(string_t& v) override {
    switch (state_) {
      case State::kMetadata: {
        if (!header_.metadata.emplace(key_, std::move(v)).second) {
          return FailHeader(fmt::format("has the key {} twice in __metadata__", Quoted(key_)));
        }
        if (header_.metadata.size() > kMaxMetadataEntries) {
          return FailHeader(fmt::format("has more than {} entries in __metadata__", kMaxMetadataEntries));
        }
        return true;
      }
      case State::kTensor:
        if (field_ != Field::kDType) return Scalar("a string");
        tensor_.dtype = FindStoredDType(v);
        if (!tensor_.dtype) {
          return Fail(fmt::format("has the unknown dtype {}; known are {}", Quoted(v), KnownDTypes()));
        }
        return true;
      default:
        return Scalar("a string");
    }
  }
  bool binary(binary_t&) override { return Scalar("binary data"); }

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kRoot;
        return true;
      case State::kRoot:
        if (key_ == kMetadataKey) {
          if (seen_metadata_) return FailHeader("has __metadata__ twice");
          seen_metadata_ = true;
          state_ = State::kMetadata;
        } else {
          state_ = State::kTensor;
          tensor_ = StoredTensor{.name = std::move(key_)};
          seen_dtype_ = seen_shape_ = seen_offsets_ = false;
          offsets_.clear();
        }
        return true;
      default:
        return Nested("an object");
    }
  }
  bool end_object() override {
    switch (state_) {
      case State::kRoot:
        state_ = State::kStart;
        return true;
      case State::kMetadata:
        state_ = State::kRoot;
        return true;
      case State::kSkip:
        return Leave();
      default:
        return FinishTensor();
    }
  }
  bool start_array(size_t) override {
    if (state_ == State::kTensor && field_ == Field::kShape) {
      state_ = State::kShape;
      return true;
    }
    if (state_ == State::kTensor && field_ == Field::kOffsets) {
      state_ = State::kOffsets;
      return true;
    }
    return Nested("an array");
  }
  bool end_array() override {
    if (state_ == State::kSkip) return Leave();
    if (state_ == State::kOffsets && offsets_.size() != 2) {
      return Fail(fmt::format("has {} data_offsets instead of 2 (begin and end)", offsets_.size()));
    }
    state_ = State::kTensor;
    return true;
  }
  bool key(string_t& v) override {
    if (state_ == State::kSkip) return true;
    if (state_ != State::kTensor) {
      key_ = std::move(v);
      return true;
    }
    if (v == "dtype") return Enter(Field::kDType, seen_dtype_, v);
    if (v == "shape") return Enter(Field::kShape, seen_shape_, v);
    if (v == "data_offsets") return Enter(Field::kOffsets, seen_offsets_, v);
    field_ = Field::kUnknown;  // ignored, as the format's own library does
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // nlohmann: "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...; last read: ...".
    std::string what = e.what();
    if (const size_t colon = what.find(": "); colon != what.npos) what.erase(0, colon + 2);
    return FailHeader(
        fmt::format("is not valid JSON at byte {} ({}); fetch or copy the file again", position, Quoted(what)));
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kSkip };
  enum class Field { kDType, kShape, kOffsets, kUnknown };

  bool Fail(const std::string& what) {
    error_ = Corrupt(fmt::format("{}: tensor {} {}", path_, Quoted(tensor_.name), what));
    return false;
  }
  bool FailHeader(const std::string& what) {
    error_ = Corrupt(fmt::format("{}: the safetensors header {}", path_, what));
    return false;
  }
  const char* Place() const {
    switch (field_) {
      case Field::kDType:
        return "dtype";
      case Field::kShape:
        return "shape";
      case Field::kOffsets:
        return "data_offsets";
      case Field::kUnknown:
        break;
    }
    return "entry";
  }

  // A scalar where the format wants something else.
  bool Scalar(const char* what) {
    switch (state_) {
      case State::kSkip:
        return true;
      case State::kStart:
        return FailHeader(fmt::format("should be a JSON object but is {}", what));
      case State::kMetadata:
        return FailHeader(
            fmt::format("has {} for the key {} of __metadata__, where only strings may be", what, Quoted(key_)));
      case State::kRoot:
        if (key_ == kMetadataKey) return FailHeader(fmt::format("has {} as __metadata__, not an object", what));
        tensor_.name = key_;
        return Fail(fmt::format("is {}, not an object with dtype, shape and data_offsets", what));
      case State::kTensor:
        if (field_ == Field::kUnknown) return true;
        return Fail(fmt::format("has {} as its {}", what, Place()));
      case State::kShape:
      case State::kOffsets:
        return Fail(fmt::format("has {} in its {}", what, Place()));
    }
    return false;
  }
  // An object or array where the format wants something else.
  bool Nested(const char* what) {
    if (state_ == State::kSkip || (state_ == State::kTensor && field_ == Field::kUnknown)) {
      state_ = State::kSkip;
      ++skip_depth_;
      return true;
    }
    return Scalar(what);
  }
  bool Leave() {
    if (--skip_depth_ == 0) state_ = State::kTensor;
    return true;
  }
  bool Enter(Field field, bool& seen, const std::string& name) {
    if (seen) return Fail(fmt::format("has '{}' twice", name));
    seen = true;
    field_ = field;
    return true;
  }

  bool Integer(uint64_t v, bool negative, int64_t signed_value) {
    if (state_ != State::kShape && state_ != State::kOffsets) return Scalar("a number");
    if (negative) return Fail(fmt::format("has the negative number {} in its {}", signed_value, Place()));
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(fmt::format("has {} in its {}, more than any file holds", v, Place()));
    }
    auto& list = state_ == State::kShape ? tensor_.dims : offsets_;
    if (list.size() == kMaxRank) {
      return Fail(fmt::format("has more than {} numbers in its {}", kMaxRank, Place()));
    }
    list.push_back(static_cast<int64_t>(v));
    return true;
  }

  bool FinishTensor() {
    state_ = State::kRoot;
    if (!seen_dtype_) return Fail("has no dtype");
    if (!seen_shape_) return Fail("has no shape");
    if (!seen_offsets_) return Fail("has no data_offsets");
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (tensor_.end < tensor_.begin) {
      return Fail(fmt::format("ends (byte {}) before it begins (byte {})", tensor_.end, tensor_.begin));
    }
    if (!BitsOfNonZeroDims(tensor_)) {
      return Fail(fmt::format("of shape [{}] has more bytes than 64 bits can count", fmt::join(tensor_.dims, ", ")));
    }
    const int64_t bits = tensor_.elements() * tensor_.dtype->bits;
    if (bits % 8 != 0) return Fail(fmt::format("of type {} does not fill whole bytes", tensor_.ToString()));
    if (bits / 8 != tensor_.bytes().v) {
      return Fail(fmt::format("of type {} should have {} bytes but its data_offsets [{}, {}] span {}",
                              tensor_.ToString(), bits / 8, tensor_.begin, tensor_.end, tensor_.bytes().v));
    }
    tensor_.dims.shrink_to_fit();
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  Status error_;
  State state_ = State::kStart;
  Field field_ = Field::kUnknown;
  std::string key_;      // of the root or of __metadata__
  StoredTensor tensor_;  // the one being read
  std::vector<int64_t> offsets_;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false, seen_metadata_ = false;
  int64_t skip_depth_ = 0;
};

Status CheckNamesAreUnique(const std::vector<StoredTensor>& tensors, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return OkStatus();
  return Corrupt(
      fmt::format("{}: tensor {} is in the header twice; Temper cannot tell which one counts", path, Quoted(*twice)));
}

// Sorts by place and proves that the tensors cover [0, data_bytes) exactly.
Status CheckCoverage(std::vector<StoredTensor>& tensors, int64_t data_bytes, const std::string& path) {
  const auto last = std::max_element(tensors.begin(), tensors.end(),
                                     [](const StoredTensor& a, const StoredTensor& b) { return a.end < b.end; });
  if (last != tensors.end() && last->end > data_bytes) {
    return Corrupt(
        fmt::format("{} is truncated: tensor {} ends at byte {} of the data but the file holds only {}; "
                    "fetch or copy it again",
                    path, Quoted(last->name), last->end, data_bytes));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t covered = 0;
  const StoredTensor* before = nullptr;
  for (const StoredTensor& t : tensors) {
    if (t.begin < covered) {
      return Corrupt(
          fmt::format("{}: tensors {} and {} overlap: the first ends at byte {} of the data, the second "
                      "begins at byte {}; a valid writer never does this, so get the file from its origin",
                      path, Quoted(before->name), Quoted(t.name), covered, t.begin));
    }
    if (t.begin > covered) {
      return Corrupt(
          fmt::format("{}: bytes {} to {} of the data, before tensor {}, belong to no tensor; a valid "
                      "writer leaves no hole, so get the file from its origin",
                      path, covered, t.begin, Quoted(t.name)));
    }
    covered = t.end;
    before = &t;
  }
  if (covered != data_bytes) {
    return Corrupt(
        fmt::format("{} has {} bytes after its last tensor ({}); a valid file ends there, so get it from "
                    "its origin",
                    path, data_bytes - covered, before ? Quoted(before->name) : "it has none"));
  }
  return OkStatus();
}

}  // namespace

const StoredDType* FindStoredDType(std::string_view name) {
  for (const StoredDType& t : kStoredDTypes) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

int64_t StoredTensor::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n = d == 0 ? 0 : n * d;
  return n;
}

std::string StoredTensor::ToString() const {
  return fmt::format("{}[{}]", dtype->name, fmt::join(dims, ", "));
}

Result<TensorType> StoredTensor::type() const {
  if (!dtype->dtype) {
    return Unsupported(
        fmt::format("tensor {} is stored as {}, which Temper does not compute with; convert the model "
                    "to BF16, F16 or F32",
                    Quoted(name), dtype->name));
  }
  if (dims.size() > Shape::kMaxRank) {
    return Unsupported(fmt::format("tensor {} has {} dims, more than the {} that Temper computes with", Quoted(name),
                                   dims.size(), static_cast<int>(Shape::kMaxRank)));
  }
  TensorType t{.dtype = *dtype->dtype};
  for (int64_t d : dims) t.shape.Append(d);
  return t;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes, const std::string& path) {
  if (json.empty() || json.front() != '{') {
    return Corrupt(fmt::format("{}: the safetensors header should start with '{{' but {}; is it another kind of file?",
                               path, json.empty() ? "is empty" : "starts with " + Quoted(json.substr(0, 1))));
  }
  // nlohmann takes a zero byte for the end of the text and would not see what comes after it.
  if (const size_t zero = json.find('\0'); zero != json.npos) {
    return Corrupt(
        fmt::format("{}: the safetensors header is not valid JSON at byte {} (a zero byte); fetch or copy the "
                    "file again",
                    path, zero));
  }
  SafetensorsHeader header;
  HeaderHandler handler(path, header);
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) return handler.error();
  TEMPER_RETURN_IF_ERROR(CheckNamesAreUnique(header.tensors, path));
  TEMPER_RETURN_IF_ERROR(CheckCoverage(header.tensors, data_bytes, path));
  return header;
}

Result<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header, int64_t alignment) {
  std::vector<std::string_view> names;
  std::string json = "{";
  try {
    if (!header.metadata.empty()) json += "\"__metadata__\":" + Json(header.metadata).dump();
    for (const StoredTensor& t : header.tensors) {
      if (t.name == kMetadataKey) return InvalidArgument("a tensor cannot be called '__metadata__' in safetensors");
      names.push_back(t.name);
      json +=
          fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json.size() == 1 ? "" : ",",
                      Json(t.name).dump(), t.dtype->name, fmt::join(t.dims, ","), t.begin, t.end);
    }
  } catch (const nlohmann::detail::exception&) {  // dump() of text that is not UTF-8
    return InvalidArgument(
        fmt::format("{} cannot be written to safetensors: it is not UTF-8",
                    names.empty() ? "a key or value of the metadata" : "tensor name " + Quoted(names.back())));
  }
  json += "}";
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return InvalidArgument(fmt::format("tensor {} would be written twice", Quoted(*twice)));
  }
  // Padded, the data starts aligned: so is every element for a reader that maps the file.
  const auto unit = static_cast<size_t>(alignment);
  json.append((unit - (sizeof(uint64_t) + json.size()) % unit) % unit, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxSafetensorsHeader) {
    return InvalidArgument(fmt::format("{} tensors need a header of {} bytes, more than a safetensors file may have",
                                       header.tensors.size(), json.size()));
  }
  const uint64_t length = json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

}  // namespace temper

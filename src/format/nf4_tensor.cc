#include "format/nf4_tensor.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "format/conversion.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kMostColumns = 1 << 24, kMostRows = 1 << 24;  // no product overflows
constexpr int64_t kMostState = 64 << 10;                        // bytes; real ones have 200
constexpr char kState[] = ".quant_state.bitsandbytes__nf4";

Status Damaged(const QuantisedTensor::Part& at, const std::string& what) {
  return Corrupt(fmt::format("{}: tensor {} {}: get the model again, or the original weights", at.file->path(),
                             Quoted(at.tensor->name), what));
}

Result<std::vector<float>> ReadFloats(const QuantisedTensor::Part& stored, int64_t elements) {
  const auto type = stored.tensor->type();
  if (!type.ok() || type->dtype != DType::kF32 || stored.tensor->elements() != elements) {
    return Damaged(stored, fmt::format("is {}, not {} numbers of F32", stored.tensor->ToString(), elements));
  }
  std::vector<float> x(static_cast<size_t>(elements));
  TEMPER_RETURN_IF_ERROR(stored.file->ReadTensor(stored.tensor->name, std::as_writable_bytes(std::span(x))));
  return x;
}

// "bfloat16", as torch spells it.
const StoredDType* DTypeNamed(const Json& name) {
  if (name == "bfloat16") return FindStoredDType("BF16");
  if (name == "float16") return FindStoredDType("F16");
  return name == "float32" ? FindStoredDType("F32") : nullptr;
}

}  // namespace

Result<std::unique_ptr<QuantisedTensor>> Nf4Tensor::Open(const Part& part, const FindPart& find) {
  const std::string& name = part.tensor->name;
  const size_t at = name.find(".quant_state.bitsandbytes__");
  if (at == name.npos) return std::unique_ptr<QuantisedTensor>();
  if (!name.ends_with(kState)) {
    return Unsupported(
        fmt::format("{}: tensor {} is quantised as {}; bitsandbytes' nf4 is read: use the original weights",
                    part.file->path(), Quoted(name.substr(0, at)), Quoted(name.substr(at + 1))));
  }
  return OpenNamed(name.substr(0, name.size() - std::string_view(kState).size()), part, find);
}

Result<std::unique_ptr<QuantisedTensor>> Nf4Tensor::OpenNamed(const std::string& name, const Part& state,
                                                              const FindPart& find) {
  std::unique_ptr<Nf4Tensor> t(new Nf4Tensor);
  const auto require = [&](const char* end) -> Result<Part> {
    const Part stored = find(name + end);
    if (stored.tensor != nullptr) return stored;
    if (end == std::string_view(".nested_absmax")) {
      return Unsupported(
          fmt::format("{}: tensor {} is quantised, but its scales are not "
                      "(bnb_4bit_use_double_quant: false); use the original weights with base_dtype: nf4",
                      state.file->path(), Quoted(name)));
    }
    return Damaged(state, fmt::format("belongs to {}{}, which is missing", name, end));
  };
  t->whole_.name = name;
  for (const char* end : {"", ".absmax", ".nested_absmax", ".quant_map", ".nested_quant_map"}) {
    TEMPER_ASSIGN_OR_RETURN(const Part found, require(end));
    t->parts_.push_back(found);
  }
  t->parts_.push_back(state);
  const Part &indices = t->parts_[0], &absmax = t->parts_[1], &scales = t->parts_[2], &numbers = t->parts_[3],
             &absmax_numbers = t->parts_[4];
  TEMPER_RETURN_IF_ERROR(t->ReadState(state));

  const int64_t elements = t->whole_.elements(), blocks = (elements + kNf4Block - 1) / kNf4Block;
  if (indices.tensor->bytes().v != (elements + 1) / 2) {
    return Damaged(indices, fmt::format("has {} bytes, not 4 bits for each of the {} elements of its quant_state",
                                        indices.tensor->bytes().v, elements));
  }
  if (absmax.tensor->bytes().v != blocks) {
    return Damaged(absmax, fmt::format("has {} bytes, not one for each of {} blocks of {} elements",
                                       absmax.tensor->bytes().v, blocks, kNf4Block));
  }
  TEMPER_ASSIGN_OR_RETURN(t->scales_, ReadFloats(scales, (blocks + kNf4Group - 1) / kNf4Group));
  for (const float scale : t->scales_) {
    if (!std::isfinite(scale)) return Damaged(scales, "has a scale that is not finite");
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> map, ReadFloats(numbers, std::ssize(kNf4Numbers)));
  if (!std::equal(map.begin(), map.end(), kNf4Numbers)) return Damaged(numbers, "does not hold the numbers of nf4");
  const std::span<const float, 256> usual = kNf4AbsmaxNumbers;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> nested_map, ReadFloats(absmax_numbers, std::ssize(usual)));
  if (!std::equal(nested_map.begin(), nested_map.end(), usual.begin())) {
    return Damaged(absmax_numbers, "does not hold bitsandbytes' dynamic map");
  }
  return std::unique_ptr<QuantisedTensor>(std::move(t));
}

Status Nf4Tensor::ReadState(const Part& state) {
  if (state.tensor->bytes().v > kMostState) return Damaged(state, "is too long");
  std::string text(static_cast<size_t>(state.tensor->bytes().v), '\0');
  TEMPER_RETURN_IF_ERROR(
      state.file->ReadTensor(state.tensor->name, std::as_writable_bytes(std::span(text.data(), text.size()))));
  const auto parsed = ParseJson(text, state.tensor->name);
  if (!parsed.ok() || !parsed->is_object()) return Damaged(state, "does not hold a JSON object");
  const auto value = [&parsed](const char* key) {
    const auto it = parsed->find(key);
    return it == parsed->end() ? Json() : *it;
  };
  for (const auto& [key, usual] :
       {std::pair<const char*, Json>{"quant_type", "nf4"}, {"blocksize", kNf4Block}, {"nested_blocksize", kNf4Group}}) {
    if (value(key) == usual) continue;
    return Damaged(state,
                   fmt::format("has {} {}; {} is read", key, DumpJson(value(key)).substr(0, 40), DumpJson(usual)));
  }
  const auto size = [](const Json& dim, int64_t most) {
    return dim.is_number_integer() && dim >= 1 && dim <= most ? dim.get<int64_t>() : 0;
  };
  const Json shape = value("shape"), mean = value("nested_offset");
  const bool matrix = shape.is_array() && shape.size() == 2;
  const int64_t rows = matrix ? size(shape[0], kMostRows) : 0, columns = matrix ? size(shape[1], kMostColumns) : 0;
  if (rows == 0 || columns == 0) {
    return Damaged(state, fmt::format("has shape {}, not that of a matrix", DumpJson(shape).substr(0, 40)));
  }
  whole_.dims = {rows, columns};
  whole_.dtype = DTypeNamed(value("dtype"));
  if (whole_.dtype == nullptr) {
    return Damaged(
        state, fmt::format("has dtype {}, not bfloat16, float16 or float32", DumpJson(value("dtype")).substr(0, 40)));
  }
  whole_.end = rows * columns * whole_.dtype->bits / 8;
  mean_ = mean.is_number() ? mean.get<float>() : NAN;
  if (!std::isfinite(mean_)) return Damaged(state, "has no nested_offset that is a number");
  return OkStatus();
}

Status Nf4Tensor::ReadIndices(int64_t first, std::span<uint8_t> out) const {
  constexpr int64_t kAtOnce = 16 << 10;  // bytes
  std::byte pairs[kAtOnce];
  const int64_t end = first + std::ssize(out);
  for (int64_t byte = first / 2; 2 * byte < end; byte += kAtOnce) {
    const auto part = std::span(pairs).first(static_cast<size_t>(std::min(kAtOnce, (end + 1) / 2 - byte)));
    TEMPER_RETURN_IF_ERROR(indices().file->ReadRange(indices().tensor->name, byte, part));
    for (int64_t i = std::max(first, 2 * byte); i < std::min(end, 2 * (byte + kAtOnce)); ++i) {
      const auto pair = static_cast<int>(part[static_cast<size_t>(i / 2 - byte)]);
      out[static_cast<size_t>(i - first)] = static_cast<uint8_t>(i % 2 == 0 ? pair >> 4 : pair & 15);
    }
  }
  return OkStatus();
}

Result<Nf4Absmaxes> Nf4Tensor::ReadAbsmaxes() const {
  Nf4Absmaxes all{.indices = std::vector<uint8_t>(static_cast<size_t>(absmax().tensor->bytes().v)),
                  .scales = scales_,
                  .mean = mean_};
  TEMPER_RETURN_IF_ERROR(
      absmax().file->ReadTensor(absmax().tensor->name, std::as_writable_bytes(std::span(all.indices))));
  return all;
}

// Reads the absmaxes of the whole tensor once.
class Nf4Tensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const Nf4Tensor& tensor) : t_(tensor) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    if (absmaxes_.indices.empty()) {
      TEMPER_ASSIGN_OR_RETURN(absmaxes_, t_.ReadAbsmaxes());
    }
    row_.resize(static_cast<size_t>(columns));
    for (int64_t r = first; r < first + count; ++r, out += Nf4RowBytes(columns)) {
      const int64_t at = r * t_.whole_.dims[1] + begin;
      TEMPER_RETURN_IF_ERROR(t_.ReadIndices(at, row_));
      WriteNf4Row(row_, at, absmaxes_, out);
    }
    return OkStatus();
  }

 private:
  const Nf4Tensor& t_;
  Nf4Absmaxes absmaxes_;
  std::vector<uint8_t> row_;
};

std::unique_ptr<QuantisedTensor::Rows> Nf4Tensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status Nf4Tensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  constexpr int64_t kAtOnce = 64 * kNf4Block;
  const int64_t end = first + std::ssize(out) / SizeOf(target);
  const DType dtype = *whole_.dtype->dtype;
  uint8_t indices[kAtOnce];
  std::byte of_absmax[kAtOnce / kNf4Block + 1];
  float numbers[kAtOnce];
  alignas(float) std::byte rounded[kAtOnce * sizeof(float)];
  for (int64_t begin = first; begin < end; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, end - begin), block = begin / kNf4Block;
    const int64_t blocks = (begin + n - 1) / kNf4Block - block + 1;
    TEMPER_RETURN_IF_ERROR(ReadIndices(begin, std::span(indices).first(static_cast<size_t>(n))));
    TEMPER_RETURN_IF_ERROR(absmax().file->ReadRange(absmax().tensor->name, block,
                                                    std::span(of_absmax).first(static_cast<size_t>(blocks))));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t b = (begin + i) / kNf4Block;
      const auto index = static_cast<uint8_t>(of_absmax[b - block]);
      numbers[i] = kNf4Numbers[indices[i]] * Nf4Absmax(index, scales_[static_cast<size_t>(b / kNf4Group)], mean_);
    }
    std::byte* const to = out.data() + (begin - first) * SizeOf(target);
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(numbers), dtype, rounded, n);
    Convert(dtype, rounded, target, to, n);
  }
  return OkStatus();
}

}  // namespace temper

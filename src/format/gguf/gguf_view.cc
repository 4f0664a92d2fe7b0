#include "format/gguf/gguf_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "format/conversion.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kVersionOfMap = 1;

// Adds to each element.
void Shift(DType type, float by, std::span<std::byte> elements) {
  const int64_t n = std::ssize(elements) / SizeOf(type);
  std::vector<float> x(static_cast<size_t>(n));
  auto* const bytes = reinterpret_cast<std::byte*>(x.data());
  Convert(type, elements.data(), DType::kF32, bytes, n);
  for (float& one : x) one += by;
  Convert(DType::kF32, bytes, type, elements.data(), n);
}

}  // namespace

std::string GgufMap::ToJson() const {
  Json json = {{"version", kVersionOfMap}, {"file", file}, {"bytes", bytes}, {"modified_ns", modified_ns}};
  Json& list = json["tensors"] = Json::array();
  for (const Tensor& t : tensors) {
    Json parts = Json::array();
    for (const GgufRows& p : t.parts) {
      parts.push_back({{"tensor", p.tensor},
                       {"first", p.first},
                       {"rows", p.rows},
                       {"head", p.order.head},
                       {"rotary", p.order.rotary},
                       {"added", p.added}});
    }
    list.push_back({{"name", t.name}, {"dims", t.dims}, {"parts", std::move(parts)}, {"in_blocks", t.in_blocks}});
  }
  json["formats"] = formats;
  return DumpJson(json) + "\n";
}

Result<GgufMap> GgufMap::Read(Env& env, const std::string& path) {
  constexpr Bytes kMost = MiB(64);
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMost));
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  TEMPER_ASSIGN_OR_RETURN(const int64_t version, IntOr(json, "version", 0, path));
  const Json* const list = FindValue(json, "tensors");
  if (version != kVersionOfMap || list == nullptr || !list->is_array()) {
    return Corrupt(fmt::format("{} is not a map of version {}", path, kVersionOfMap));
  }
  GgufMap map;
  TEMPER_ASSIGN_OR_RETURN(map.file, StringOr(json, "file", "", path));
  TEMPER_ASSIGN_OR_RETURN(map.bytes, RequireInt(json, "bytes", path));
  TEMPER_ASSIGN_OR_RETURN(map.modified_ns, RequireInt(json, "modified_ns", path));
  for (const Json& one : *list) {
    Tensor t;
    TEMPER_ASSIGN_OR_RETURN(t.name, StringOr(one, "name", "", path));
    const Json *const dims = FindValue(one, "dims"), *const parts = FindValue(one, "parts");
    if (dims == nullptr || !dims->is_array() || parts == nullptr || !parts->is_array()) {
      return Corrupt(fmt::format("{}: tensor {} has no dims and parts", path, Quoted(t.name)));
    }
    if (dims->size() > 4) return Corrupt(fmt::format("{}: tensor {} has {} dims", path, Quoted(t.name), dims->size()));
    int64_t elements = 1;
    for (const Json& dim : *dims) {
      if (!dim.is_number_integer() || dim < 0 || dim > int64_t{1} << 40) return Corrupt(path + ": a wrong dimension");
      t.dims.push_back(dim.get<int64_t>());
      if (__builtin_mul_overflow(elements, std::max<int64_t>(t.dims.back(), 1), &elements) || elements > int64_t{1}
                                                                                                             << 48) {
        return Corrupt(fmt::format("{}: tensor {} is too large", path, Quoted(t.name)));
      }
    }
    for (const Json& part : *parts) {
      GgufRows rows;
      TEMPER_ASSIGN_OR_RETURN(rows.tensor, StringOr(part, "tensor", "", path));
      TEMPER_ASSIGN_OR_RETURN(rows.first, RequireInt(part, "first", path));
      TEMPER_ASSIGN_OR_RETURN(rows.rows, RequireInt(part, "rows", path));
      TEMPER_ASSIGN_OR_RETURN(rows.order.head, RequireInt(part, "head", path));
      TEMPER_ASSIGN_OR_RETURN(rows.order.rotary, RequireInt(part, "rotary", path));
      TEMPER_ASSIGN_OR_RETURN(const double added, NumberOr(part, "added", 0, path));
      rows.added = static_cast<float>(added);
      t.parts.push_back(std::move(rows));
    }
    TEMPER_ASSIGN_OR_RETURN(t.in_blocks, BoolOr(one, "in_blocks", false, path));
    map.tensors.push_back(std::move(t));
  }
  if (const Json* const formats = FindValue(json, "formats"); formats != nullptr && formats->is_object()) {
    for (const auto& [module, format] : formats->items()) {
      if (!format.is_string()) return Corrupt(path + ": formats should be names");
      map.formats.emplace(module, format.get<std::string>());
    }
  }
  return map;
}

GgufView::GgufView(std::unique_ptr<RandomAccessFile> map, GgufFile file, SafetensorsHeader header,
                   std::vector<Rows> rows)
    : TensorFile(std::move(map), /*data_begin=*/0, std::move(header)), file_(std::move(file)), rows_(std::move(rows)) {}

Result<GgufView> GgufView::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const GgufMap map, GgufMap::Read(env, path));
  TEMPER_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(env, map.file));
  if (file.size().v != map.bytes || file.version().modified_ns != map.modified_ns) {
    return Corrupt(
        fmt::format("{} has changed since {} was made for it: remove the folder of the latter, and give the "
                    "GGUF file itself",
                    map.file, path));
  }
  const auto wrong = [&](const GgufMap::Tensor& t, const std::string& what) {
    return Corrupt(fmt::format("{}: tensor {} {}", path, Quoted(t.name), what));
  };
  SafetensorsHeader header;
  std::vector<Rows> all;
  std::vector<std::pair<int64_t, size_t>> order;  // by the place of the first part
  std::vector<StoredTensor> tensors;
  for (const GgufMap::Tensor& t : map.tensors) {
    StoredTensor stored{.name = t.name, .dims = t.dims};
    Rows rows;
    rows.columns = t.dims.size() < 2 ? 1 : t.dims.back();
    int64_t begin = 0;
    for (const GgufRows& part : t.parts) {
      const StoredTensor* const source = file.Find(part.tensor);
      if (source == nullptr) return wrong(t, "is made of " + Quoted(part.tensor) + ", which the GGUF file lacks");
      const int64_t columns = source->dims.size() < 2 ? 1 : source->dims.back();
      const int64_t height = columns == 0 ? 0 : source->elements() / columns;
      const auto [head, rotary] = part.order;
      const bool fits = columns == rows.columns && part.first >= 0 && part.rows >= 0 && part.first <= height &&
                        part.rows <= height - part.first && head >= 0 && rotary >= 0 && rotary <= head &&
                        rotary % 2 == 0 && (head == 0 || (part.first % head == 0 && part.rows % head == 0));
      if (!fits) return wrong(t, "does not fit " + Quoted(part.tensor));
      if (stored.dtype != nullptr && stored.dtype != source->dtype) return wrong(t, "has parts of several types");
      stored.dtype = source->dtype;
      rows.parts.push_back({source, begin, part});
      begin += part.rows;
    }
    if (stored.dtype == nullptr || begin * rows.columns != stored.elements()) return wrong(t, "is not covered");
    const bool floats = stored.dtype->dtype && IsFloating(*stored.dtype->dtype);
    if (!floats) return wrong(t, fmt::format("is stored as {}", stored.dtype->name));
    if (t.in_blocks) {
      rows.blocks = file.BlocksOf(*rows.parts.front().source);
      const bool fits =
          t.dims.size() == 2 && rows.blocks != nullptr && t.dims[1] > 0 && t.dims[1] % rows.blocks->elements == 0 &&
          std::all_of(rows.parts.begin(), rows.parts.end(),
                      [&](const Part& p) { return p.rows.added == 0 && file.BlocksOf(*p.source) == rows.blocks; });
      if (!fits) return wrong(t, "is no matrix in blocks");
    }
    stored.begin = rows.parts.front().source->begin;
    stored.end = stored.begin + stored.elements() * stored.dtype->bits / 8;
    order.emplace_back(stored.begin, all.size());
    tensors.push_back(std::move(stored));
    all.push_back(std::move(rows));
  }
  std::sort(order.begin(), order.end());
  std::vector<Rows> sorted;
  for (const auto& [place, i] : order) {
    header.tensors.push_back(std::move(tensors[i]));
    sorted.push_back(std::move(all[i]));
  }
  TEMPER_ASSIGN_OR_RETURN(auto of_map, env.OpenForRead(path));
  return GgufView(std::move(of_map), std::move(file), std::move(header), std::move(sorted));
}

Status GgufView::ReadSource(const Part& part, As as, int64_t bytes, int64_t row, int64_t rows,
                            std::span<std::byte> out) const {
  const int64_t begin = (part.rows.first + row) * bytes;
  out = out.first(static_cast<size_t>(rows * bytes));
  return as == As::kBlocks ? file_.ReadBlocks(*part.source, begin, out)
                           : file_.ReadRange(part.source->name, begin, out);
}

Status GgufView::ReadRows(const Part& part, As as, int64_t bytes, int64_t first, int64_t rows,
                          std::span<std::byte> out) const {
  const auto [head, rotary] = part.rows.order;
  if (head == 0) return ReadSource(part, as, bytes, first, rows, out);
  // Neighbours in the GGUF file are halves apart here: whole heads are read.
  constexpr int64_t kWindow = 1 << 20;  // bytes
  const int64_t at_once = std::max<int64_t>(1, kWindow / (head * bytes)) * head, half = rotary / 2;
  std::vector<std::byte> heads;
  for (int64_t row = first; row < first + rows;) {
    const int64_t begin = row / head * head;
    const int64_t end = std::min(begin + at_once, (first + rows + head - 1) / head * head);
    heads.resize(static_cast<size_t>((end - begin) * bytes));
    TEMPER_RETURN_IF_ERROR(ReadSource(part, as, bytes, begin, end - begin, heads));
    for (; row < std::min(first + rows, end); ++row) {
      const int64_t i = row % head;
      const int64_t from = i >= rotary ? i : i < half ? 2 * i : 2 * (i - half) + 1;
      std::memcpy(out.data() + (row - first) * bytes, heads.data() + (row - i - begin + from) * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  return OkStatus();
}

template <class Read>
Status GgufView::ForParts(const Rows& rows, int64_t first, int64_t count, int64_t bytes, std::span<std::byte> out,
                          const Read& read) {
  for (const Part& part : rows.parts) {
    const int64_t low = std::max(first, part.begin), high = std::min(first + count, part.begin + part.rows.rows);
    if (low >= high) continue;
    const auto piece =
        out.subspan(static_cast<size_t>((low - first) * bytes), static_cast<size_t>((high - low) * bytes));
    TEMPER_RETURN_IF_ERROR(read(part, low - part.begin, high - low, piece));
  }
  return OkStatus();
}

Status GgufView::ReadBlocks(const StoredTensor& t, int64_t first, int64_t count, std::span<std::byte> out) const {
  const Rows& rows = rows_[IndexOf(t)];
  const int64_t bytes = rows.blocks->BytesOf(rows.columns).v;
  return ForParts(rows, first, count, bytes, out,
                  [&](const Part& part, int64_t row, int64_t n, std::span<std::byte> piece) {
                    return ReadRows(part, As::kBlocks, bytes, row, n, piece);
                  });
}

Status GgufView::ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const {
  const Rows& rows = rows_[IndexOf(t)];
  const int64_t size = t.dtype->bits / 8, bytes = rows.columns * size;
  if (out.empty() || bytes == 0) return OkStatus();
  const int64_t end = begin + std::ssize(out);
  const int64_t first = begin / bytes, last = (end + bytes - 1) / bytes;
  // Rows that are asked for in part are read whole.
  const bool whole = begin % bytes == 0 && end % bytes == 0;
  std::vector<std::byte> own(whole ? 0 : static_cast<size_t>((last - first) * bytes));
  const std::span<std::byte> to = whole ? out : std::span(own);
  TEMPER_RETURN_IF_ERROR(ForParts(rows, first, last - first, bytes, to,
                                  [&](const Part& part, int64_t row, int64_t n, std::span<std::byte> piece) -> Status {
                                    TEMPER_RETURN_IF_ERROR(ReadRows(part, As::kNumbers, bytes, row, n, piece));
                                    if (part.rows.added != 0) Shift(*t.dtype->dtype, -part.rows.added, piece);
                                    return OkStatus();
                                  }));
  if (!whole) std::memcpy(out.data(), own.data() + (begin - first * bytes), out.size());
  return OkStatus();
}

}  // namespace temper

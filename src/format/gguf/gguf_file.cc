#include "format/gguf/gguf_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "format/quoted.h"

namespace temper {
namespace {

// Blocks that are decoded at once: their bytes and numbers fit a core's L2 cache.
constexpr int64_t kPieceElements = 32 << 10;

// The types that are numbers.
const StoredDType* NumbersOf(uint32_t type) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"f32", "F32"}, {"f16", "F16"}, {"bf16", "BF16"}, {"f64", "F64"},
      {"i8", "I8"},   {"i16", "I16"}, {"i32", "I32"},   {"i64", "I64"}};
  for (const auto& [ggml, stored] : kNames) {
    if (NameOfGgmlType(type) == ggml) return FindStoredDType(stored);
  }
  return nullptr;
}

}  // namespace

GgufFile::GgufFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header,
                   GgufMetadata keys, std::vector<Place> places)
    : TensorFile(std::move(file), data_begin, std::move(header)), keys_(std::move(keys)), places_(std::move(places)) {}

Result<GgufFile> GgufFile::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  TEMPER_ASSIGN_OR_RETURN(GgufHeader read, ReadGgufHeader(*file));
  std::vector<size_t> order(read.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return read.tensors[a].begin < read.tensors[b].begin; });
  SafetensorsHeader header;
  std::vector<Place> places;
  int64_t end_before = 0;
  const GgufEntry* before = nullptr;
  for (const size_t i : order) {
    GgufEntry& t = read.tensors[i];
    const BlockDecoder* const decoder = FindBlockDecoder(t.type);
    const StoredDType* const numbers = decoder != nullptr ? FindStoredDType("F32") : NumbersOf(t.type);
    if (numbers == nullptr) {
      const std::string_view name = NameOfGgmlType(t.type);
      return Unsupported(
          fmt::format("{}: tensor {} is of type {}; f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, "
                      "q5_k and q6_k are read",
                      path, Quoted(t.name), name.empty() ? std::to_string(t.type) : std::string(name)));
    }
    StoredTensor stored{.name = t.name, .dtype = numbers, .dims = t.dims};
    const int64_t elements = stored.elements(), row = t.dims.empty() ? 1 : t.dims.back();
    if (decoder != nullptr && row % decoder->elements != 0) {
      return Corrupt(fmt::format("{}: tensor {} has rows of {}, and blocks of {} have {}", path, Quoted(t.name), row,
                                 decoder->name, decoder->elements));
    }
    const int64_t bytes = decoder != nullptr ? decoder->BytesOf(elements).v : elements * numbers->bits / 8;
    if (t.begin < end_before) {
      return Corrupt(fmt::format("{}: tensors {} and {} overlap; fetch or copy the file again", path,
                                 Quoted(before->name), Quoted(t.name)));
    }
    if (bytes > file->size().v - read.data_begin - t.begin) {
      return Corrupt(fmt::format("{} is truncated: tensor {} ends at byte {}, the file at {}; fetch or copy it again",
                                 path, Quoted(t.name), read.data_begin + t.begin + bytes, file->size().v));
    }
    end_before = t.begin + bytes;
    before = &t;
    stored.begin = t.begin;
    stored.end = t.begin + elements * numbers->bits / 8;
    places.push_back({read.data_begin + t.begin, decoder});
    header.tensors.push_back(std::move(stored));
  }
  return GgufFile(std::move(file), read.data_begin, std::move(header), std::move(read.metadata), std::move(places));
}

Status GgufFile::ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const {
  const auto& [place, decoder] = places_[IndexOf(t)];
  if (decoder == nullptr) return file().ReadAt(place + begin, out);
  constexpr auto kSize = static_cast<int64_t>(sizeof(float));
  const int64_t end = begin + std::ssize(out), per_block = decoder->elements;
  // Whole blocks around what is asked for.
  const int64_t first = begin / kSize / per_block, last = ((end + kSize - 1) / kSize + per_block - 1) / per_block;
  const int64_t per_piece = std::min(kPieceElements / per_block, last - first);
  std::vector<std::byte> blocks(static_cast<size_t>(per_piece * decoder->bytes));
  std::vector<float> numbers(static_cast<size_t>(per_piece * per_block));
  for (int64_t block = first; block < last; block += per_piece) {
    const int64_t count = std::min(per_piece, last - block);
    TEMPER_RETURN_IF_ERROR(file().ReadAt(place + block * decoder->bytes,
                                         std::span(blocks).first(static_cast<size_t>(count * decoder->bytes))));
    decoder->decode(blocks.data(), numbers.data(), count * per_block);
    const int64_t at = block * per_block * kSize;  // of the first number, in bytes
    const int64_t low = std::max(begin, at), high = std::min(end, at + count * per_block * kSize);
    std::memcpy(out.data() + (low - begin), reinterpret_cast<const std::byte*>(numbers.data()) + (low - at),
                static_cast<size_t>(high - low));
  }
  return OkStatus();
}

}  // namespace temper

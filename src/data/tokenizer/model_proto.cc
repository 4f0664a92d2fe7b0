#include "data/tokenizer/model_proto.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

namespace temper {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;  // of ModelProto
constexpr uint64_t kModelType = 3;                                                // of TrainerSpec
constexpr uint64_t kRemoveExtraWhitespaces = 4;                                   // of NormalizerSpec
constexpr uint64_t kPrecompiledCharsmap = 2;                                      // of NormalizerSpec

std::optional<uint64_t> ReadVarint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in[0]);
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Calls `visit` with every field of wire type 2 (bytes, messages), and `visit_number`, if set, with those of type 0;
// false if the message is broken.
bool ForEachBytesField(std::string_view message, const std::function<bool(uint64_t, std::string_view)>& visit,
                       const std::function<void(uint64_t, uint64_t)>& visit_number = nullptr) {
  while (!message.empty()) {
    const auto tag = ReadVarint(message);
    if (!tag) return false;
    size_t skip = 0;
    switch (*tag & 7) {
      case 0: {
        const auto number = ReadVarint(message);
        if (!number) return false;
        if (visit_number) visit_number(*tag >> 3, *number);
        break;
      }
      case 1:
        skip = 8;
        break;
      case 2: {
        const auto size = ReadVarint(message);
        if (!size || *size > message.size()) return false;
        if (!visit(*tag >> 3, message.substr(0, *size))) return false;
        skip = *size;
        break;
      }
      case 5:
        skip = 4;
        break;
      default:
        return false;  // groups: this format has none
    }
    if (skip > message.size()) return false;
    message.remove_prefix(skip);
  }
  return true;
}

}  // namespace

// Walks every node that a text can reach.
bool CharsmapIsSafe(std::string_view map) {
  if (map.empty()) return true;
  uint32_t bytes = 0;
  if (map.size() < sizeof(bytes)) return false;
  std::memcpy(&bytes, map.data(), sizeof(bytes));
  map.remove_prefix(sizeof(bytes));
  if (bytes >= map.size() || bytes % 4 != 0 || bytes == 0 || map.back() != '\0') return false;
  const size_t replacements = map.size() - bytes;
  std::vector<uint32_t> units(bytes / 4);
  std::memcpy(units.data(), map.data(), bytes);

  const auto offset = [](uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); };
  const auto label = [](uint32_t unit) { return unit & (1u << 31 | 0xFFu); };
  const auto has_leaf = [](uint32_t unit) { return (unit >> 8 & 1) != 0; };
  const auto value = [](uint32_t unit) { return unit & ~(1u << 31); };

  std::vector<bool> seen(units.size());
  std::vector<size_t> bases;  // a node's children are at base ^ byte
  const auto reach = [&](size_t base) {
    if ((base | 0xFF) >= units.size()) return false;
    if (!seen[base]) bases.push_back(base);
    seen[base] = true;
    return true;
  };
  if (!reach(offset(units[0]))) return false;
  while (!bases.empty()) {
    const size_t base = bases.back();
    bases.pop_back();
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t unit = units[base ^ byte];
      if (label(unit) != byte) continue;
      const size_t child = base ^ byte ^ offset(unit);
      if (!reach(child)) return false;
      if (has_leaf(unit) && value(units[child]) >= replacements) return false;
    }
  }
  return true;
}

Status CheckModelProto(std::string_view model, const std::string& where) {
  bool safe = true;
  const bool whole = ForEachBytesField(model, [&](uint64_t field, std::string_view spec) {
    if (field != kNormalizerSpec && field != kDenormalizerSpec) return true;
    return ForEachBytesField(spec, [&](uint64_t inner, std::string_view map) {
      if (inner == kPrecompiledCharsmap) safe = safe && CharsmapIsSafe(map);
      return true;
    });
  });
  if (!whole) return Corrupt(where + ": not a SentencePiece model (or cut short)");
  if (!safe) return Corrupt(where + ": the SentencePiece model's normalization table is broken");
  return OkStatus();
}

ModelProtoFacts FactsOf(std::string_view model) {
  constexpr uint64_t kBpe = 2;  // TrainerSpec::ModelType
  ModelProtoFacts facts;
  ForEachBytesField(model, [&](uint64_t field, std::string_view spec) {
    ForEachBytesField(
        spec,
        [&](uint64_t inner, std::string_view bytes) {
          if (field == kNormalizerSpec && inner == kPrecompiledCharsmap) facts.normalizes |= !bytes.empty();
          return true;
        },
        [&](uint64_t inner, uint64_t number) {
          if (field == kTrainerSpec && inner == kModelType) facts.is_bpe = number == kBpe;
          if (field == kNormalizerSpec && inner == kRemoveExtraWhitespaces) facts.joins_spaces = number != 0;
        });
    return true;
  });
  return facts;
}

std::string WithoutDummyPrefix(std::string_view model) {
  std::string out(model);
  // Field 3 (normalizer_spec), 2 bytes: field 3 (add_dummy_prefix) = 0.
  out.append({0x1A, 0x02, 0x18, 0x00});
  return out;
}

}  // namespace temper

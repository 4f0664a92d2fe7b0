#include "format/lora_module.h"

namespace temper {

std::string LoraAName(const std::string& path) {
  return "base_model.model." + path + ".lora_A.weight";
}
std::string LoraBName(const std::string& path) {
  return "base_model.model." + path + ".lora_B.weight";
}

std::string LoraMagnitudeName(const std::string& path) {
  return "base_model.model." + path + ".lora_magnitude_vector";
}
std::string LoraSquaresName(const std::string& path) {
  return "base_model.model." + path + ".lora_row_squares";
}

std::array<std::string, 2> LoraBaseNames(const std::string& path) {
  const std::string base = "base_model.model." + path + ".base_layer.";
  return {base + "weight", base + "bias"};
}

std::vector<StoredWeight> LoraWeights(std::span<const LoraModule> modules) {
  std::vector<StoredWeight> weights;
  for (const LoraModule& m : modules) {
    const FileTensor a{.name = LoraAName(m.stored_path()), .shape = {m.ranks(), m.in}};
    const FileTensor b{.name = LoraBName(m.stored_path()), .shape = {m.out, m.ranks()}};
    weights.push_back({LoraAName(m.path), a.shape, WeightSource(a)});
    const FileTensor magnitude{.name = LoraMagnitudeName(m.stored_path()), .shape = {m.out}};
    int64_t first = 0;
    for (const LoraModule::Part& part : m.parts) {
      const int64_t rows = part.rows / m.groups;
      const auto rows_of = [&](const FileTensor& tensor) {
        return WeightSource::StridedRows(tensor, first, rows, m.out / m.groups, m.groups);
      };
      weights.push_back({part.b, {part.rows, m.ranks()}, rows_of(b)});
      if (m.has_magnitudes) weights.push_back({part.magnitude, {part.rows}, rows_of(magnitude)});
      first += rows;
    }
  }
  return weights;
}

}  // namespace temper

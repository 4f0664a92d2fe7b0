#include "model/initialize.h"

#include <cmath>

#include "base/philox.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Fills value `name` and its f32 master, if any: element i of the whole tensor is f(i).
template <class F>
void Fill(const std::string& name, const BufferOf& buffer, F&& f) {
  for (const PartView& part : {buffer(name), buffer(MasterName(name))}) {
    if (part.view.data == nullptr) continue;
    DispatchFloat(part.view.type.dtype, [&]<class T>() {
      const std::span<T> x = part.view.as<T>();
      const int64_t columns = part.columns();
      for (int64_t row = 0; row < part.rows(); ++row) {
        const int64_t first = part.RowBegin(row);
        for (int64_t c = 0; c < columns; ++c) {
          x[static_cast<size_t>(row * columns + c)] = FromFloat<T>(f(static_cast<size_t>(first + c)));
        }
      }
    });
  }
}

}  // namespace

void InitializeLora(const std::vector<LoraTarget>& targets, uint64_t seed, const BufferOf& buffer) {
  for (const LoraTarget& t : targets) {
    const std::string a = LoraAName(t.module);
    const RngKey key{.seed = seed, .name_hash = HashName(a)};
    const float bound = static_cast<float>(1 / std::sqrt(static_cast<double>(t.in)));
    Fill(a, buffer, [&](size_t i) { return bound * (2 * UniformAt(key, i) - 1); });
    Fill(LoraBName(t.module), buffer, [](size_t) { return 0.0f; });
  }
}

void InitializeModel(const Model& model, uint64_t seed, const BufferOf& buffer) {
  const float deviation = static_cast<float>(model.facts().initializer_range);
  for (const WeightSpec& w : model.Weights()) {
    const RngKey key{.seed = seed, .name_hash = HashName(w.name)};
    Fill(w.name, buffer, [&](size_t i) {
      if (w.init == WeightSpec::Init::kNormal) return deviation * NormalAt(key, i);
      return w.init == WeightSpec::Init::kOne ? 1.0f : 0.0f;
    });
  }
}

}  // namespace temper

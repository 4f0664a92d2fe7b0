#include "model/initialize.h"

#include <cmath>

#include "base/philox.h"
#include "format/trained_copy.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Sets element i of the whole tensor `name` to f(i), also in its f32 master, if any.
template <class F>
Status Fill(const std::string& name, const FillBuffer& buffer, F&& f) {
  for (const std::string& each : {name, MasterName(name)}) {
    TEMPER_RETURN_IF_ERROR(buffer(each, [&](const PartView& part) {
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
    }));
  }
  return OkStatus();
}

}  // namespace

Status InitializeLora(const std::vector<LoraModule>& targets, uint64_t seed, const FillBuffer& buffer) {
  for (const LoraModule& t : targets) {
    const std::string a = LoraAName(t.path);
    const RngKey key{.seed = seed, .name_hash = HashName(a)};
    const float bound = static_cast<float>(1 / std::sqrt(static_cast<double>(t.in)));
    TEMPER_RETURN_IF_ERROR(Fill(a, buffer, [&](size_t i) { return bound * (2 * UniformAt(key, i) - 1); }));
    for (const LoraModule::Part& part : t.parts) {
      TEMPER_RETURN_IF_ERROR(Fill(part.b, buffer, [](size_t) { return 0.0f; }));
    }
  }
  return OkStatus();
}

namespace {

// As `w` begins, the buffer `name`.
Status FillWeight(const Model& model, const WeightDeclaration& w, const std::string& name, uint64_t seed,
                  const FillBuffer& buffer) {
  using Init = WeightDeclaration::Init;
  const double range = model.facts().initializer_range, blocks = static_cast<double>(model.facts().kinds.size());
  const RngKey key{.seed = seed, .name_hash = HashName(w.name)};
  const auto deviation = static_cast<float>(w.init == Init::kNormalByDepth ? range / std::sqrt(2 * blocks) : range);
  return Fill(name, buffer, [&](size_t i) {
    if (w.init == Init::kZero) return 0.0f;
    if (w.init == Init::kOne || w.init == Init::kOneDecays) return 1.0f;
    if (w.init == Init::kValue) return static_cast<float>(w.value);
    if (w.init == Init::kLogUniform) return std::log(0.01f + (16 - 0.01f) * UniformAt(key, i));
    return deviation * NormalAt(key, i);
  });
}

}  // namespace

Status InitializeModel(const Model& model, uint64_t seed, const FillBuffer& buffer) {
  for (const WeightDeclaration& w : model.weights()) {
    TEMPER_RETURN_IF_ERROR(FillWeight(model, w, w.name, seed, buffer));
  }
  return OkStatus();
}

Status InitializeHead(const Model& model, uint64_t seed, const FillBuffer& buffer) {
  const std::string& head = model.modules().back().weights.front();
  for (const WeightDeclaration& w : model.weights()) {
    if (w.name != head) continue;
    for (const std::string& name : {head, std::string(kAdapterPrefix) + head}) {
      TEMPER_RETURN_IF_ERROR(FillWeight(model, w, name, seed, buffer));
    }
  }
  return OkStatus();
}

}  // namespace temper

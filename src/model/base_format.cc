#include "model/base_format.h"

#include <set>
#include <string>

namespace temper {

void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph) {
  std::set<std::string> names;
  for (const LinearModule& module : modules) {
    if (!module.is_head) names.insert(module.weights.begin(), module.weights.end());
  }
  for (Node& node : graph->nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value& value = graph->value(node.inputs[i]);
      if (value.role != Role::kWeight || !names.contains(value.name)) continue;
      TEMPER_CHECK(node.op == Op::kLinear && i == 1 && !value.trainable)
          << value.name << " is used by " << ToString(node.op);
      TEMPER_CHECK(value.type.dtype.compute() == base.format.compute()) << value.name << " " << value.type.ToString();
      value.type.dtype = base.format;
      if (base.dequantised_first) node.attributes.Set("dequantise", int64_t{1});
    }
  }
}

}  // namespace temper

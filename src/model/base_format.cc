#include "model/base_format.h"

#include <set>
#include <string>

namespace temper {

void KeepBaseAs(ElementFormat format, const std::vector<LinearModule>& modules, Graph* graph) {
  std::set<std::string> names;
  for (const LinearModule& module : modules) {
    if (!module.is_head) names.insert(module.weights.begin(), module.weights.end());
  }
  for (const Node& node : graph->nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value& value = graph->value(node.inputs[i]);
      if (value.role != Role::kWeight || !names.contains(value.name)) continue;
      TEMPER_CHECK(node.op == Op::kLinear && i == 1 && !value.trainable)
          << value.name << " is used by " << ToString(node.op);
      TEMPER_CHECK(value.type.dtype.compute() == format.compute()) << value.name << " " << value.type.ToString();
      value.type.dtype = format;
    }
  }
}

}  // namespace temper

#include "run/calibration_cases.h"

#include <algorithm>

namespace temper {

std::vector<RateCases> CalibrationCases(DType dtype) {
  std::vector<RateCases> all;
  for (int i = 0; i < NumOps(); ++i) {
    const Op op = static_cast<Op>(i);
    const OpRule& rule = RuleOf(op);
    if (rule.measured == nullptr) continue;
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (MeasuredCase& c : rule.measured(dtype)) {
      const OpClass op_class = ClassOf(op, c.inputs);
      auto rate =
          std::find_if(all.begin() + first, all.end(), [&](const RateCases& r) { return r.op_class == op_class; });
      if (rate == all.end()) {
        rate = all.insert(all.end(),
                          {.op = op, .op_class = op_class, .dtype = dtype, .computes = op_class != OpClass::kMemory});
      }
      rate->cases.push_back({.op = op, .inputs = std::move(c.inputs), .attributes = std::move(c.attributes)});
    }
  }
  return all;
}

}  // namespace temper

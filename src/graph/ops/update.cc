#include "graph/ops/update.h"

namespace temper {

Result<Types> InferUpdate(Op op, const char* wanted, const Types& in, const Attributes& a) {
  Result<DType> weight = DType::kF32;
  if (a.Has("dtype")) weight = ParseDType(a.String("dtype"));
  const std::vector<const UpdateState*> states = UpdateRuleOf(op)->StatesOf(a);
  const size_t tensors = UpdateOperands::kFirstState + states.size();
  bool good = in.size() == tensors + 2 && in[0].dtype == DType::kF32 && in[UpdateOperands::kGradient] == in[0] &&
              in[tensors] == TensorType{DType::kF32, {2}} &&
              in[tensors + 1] == TensorType{DType::kF64, {kNumScalars}} && weight.ok() && IsFloat({*weight, {}}) &&
              a.Has("dtype") == a.Flag("weight");
  Types out;
  if (good) out.push_back(in[0]);
  for (size_t k = 0; good && k < states.size(); ++k) {
    out.push_back(in[UpdateOperands::kFirstState + k]);
    good = out.back() == states[k]->TypeOf(in[0].shape);
  }
  if (!good) return BadOperands(op, wanted, in, a);
  if (a.Flag("weight")) out.push_back({*weight, in[0].shape});
  return out;
}

int UpdateOverwrites(const Attributes& a, int num_inputs, int output) {
  const int states = num_inputs - 4;
  TEMPER_CHECK(output <= states + static_cast<int>(a.Flag("weight")));
  return output > states ? -1 : static_cast<int>(UpdateOperands::Replaced(static_cast<size_t>(output)));
}

}  // namespace temper

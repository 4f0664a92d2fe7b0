#include "model/feed_forward/mlp.h"

#include <cmath>

#include "graph/named_ops.h"

namespace temper {
namespace {

// transformers' initial values: softplus gives 0.8 of the first, 0.8 - beta of the second.
ValueId BuildXielu(ForwardBuilder& f, ValueId x, const std::string& module, const std::string& name) {
  constexpr double kBeta = 0.5, kBoth = 0.8;
  return f.Add(Op::kXielu,
               {x, f.Number(module + ".alpha_p", std::log(std::expm1(kBoth))),
                f.Number(module + ".alpha_n", std::log(std::expm1(kBoth - kBeta))),
                f.FixedScalar(module + ".beta", kBeta), f.FixedScalar(module + ".eps", -1e-6)},
               {}, name)[0];
}

}  // namespace

ValueId Activated(ForwardBuilder& f, ValueId x, Activation activation, const std::string& module,
                  const std::string& name) {
  switch (activation) {
    case Activation::kGelu:
      return f.Add(Op::kGelu, {x}, {{"tanh", int64_t{0}}}, name)[0];
    case Activation::kGeluTanh:
      return f.Add(Op::kGelu, {x}, {{"tanh", int64_t{1}}}, name)[0];
    case Activation::kRelu:
      return f.Add(Op::kRelu, {x}, {}, name)[0];
    case Activation::kReluSquared:
      return f.Add(Op::kReluSquared, {x}, {}, name)[0];
    case Activation::kXielu:
      return BuildXielu(f, x, module, name);
    case Activation::kSilu:
      break;
  }
  TEMPER_CHECK(false) << "an MLP with this activation is gated";
  return kNoValue;
}

GraphBuilder::Gate GateOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return GraphBuilder::Gate::kSilu;
    case Activation::kGelu:
      return GraphBuilder::Gate::kGelu;
    case Activation::kGeluTanh:
      return GraphBuilder::Gate::kGeluTanh;
    case Activation::kRelu:
    case Activation::kReluSquared:
    case Activation::kXielu:
      break;
  }
  TEMPER_CHECK(false) << "no gate has this activation";
  return {};
}

std::optional<Activation> ActivationNamed(const std::string& name, bool gated) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (gated && (name == "silu" || name == "swish")) return Activation::kSilu;
  if (!gated && name == "relu") return Activation::kRelu;
  if (!gated && name == "relu2") return Activation::kReluSquared;
  return std::nullopt;
}

// T tokens, D hidden, F ffn.
ValueId BuildMlp(ForwardBuilder& f, const MlpSpec& s, const BlockContext& block, ValueId x_TD) {
  const Dim D = block.hidden_dim(), F{DimLabel::kFfn, s.ffn};
  const ModuleLayout layout{.transposed = block.transposed};
  ValueId h;
  if (s.gated) {
    ValueId gate, up;
    if (s.fused_gate_up) {
      const auto both = f.FusedLinear(x_TD, block.path + s.gate_up, {{"gate", F}, {"up", F}}, D, s.bias);
      gate = both[0], up = both[1];
    } else {
      gate = f.Linear(x_TD, block.path + s.gate, F, D, s.bias, "gate");
      up = f.Linear(x_TD, block.path + s.up, F, D, s.bias, "up");
    }
    h = f.Glu(f.Scale(gate, s.gate_scale, "gate_scaled"), up, "mlp", GateOf(s.activation));
  } else {
    h = f.Linear(x_TD, block.path + s.up, F, D, s.bias, "up", layout);
    h = Activated(f, h, s.activation, block.path + s.act, "mlp");
  }
  h = f.Dropout(h, s.dropout, "activation_dropout");
  h = f.Linear(h, block.path + s.down, D, F, s.bias, "mlp_out", layout, block.fed_init);
  return f.Scale(h, s.out_scale, "mlp_out_scaled");
}

}  // namespace temper

// GraphBuilder: the interface with which model code writes a forward pass. A method per op that models write; shapes
// follow from the op's rule, and operands that do not fit are a bug of the model (CHECK). Holds only the place (block,
// phase) of new nodes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace temper {

class GraphBuilder {
 public:
  explicit GraphBuilder(Graph* graph) : graph_(graph) {}

  // Nodes added from now on belong to `block` of `phase`; their values' names start with `prefix`.
  void EnterBlock(int block, std::string prefix, Phase phase = Phase::kForward);
  // The block and phase of `node`, no prefix: for passes that add nodes beside those of a graph.
  void EnterBlockOf(const Node& node) { EnterBlock(node.block, "", node.phase); }

  // A source. Weights have their HF name as in the file; `prefix` does not apply. By default matrices among weights and
  // adapters decay and vectors (norms, biases) do not, as in HF Trainer; Value::decays overrides that.
  ValueId Source(std::string name, TensorType type, Role role);

  // An input with one element per token.
  ValueId TokenInput(std::string name, DType dtype, int64_t tokens);
  // The input of that name; kNoValue: none was declared.
  ValueId FindInput(std::string_view name) const;

  // Any op: adds a node and its outputs, named prefix + name (+ ".1", ".2" for further outputs). Marks
  // the output of an op that can only be a root.
  std::vector<ValueId> Add(Op op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name,
                           Role role = Role::kActivation);
  // The first output.
  ValueId AddOne(Op op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name,
                 Role role = Role::kActivation) {
    return Add(op, std::move(inputs), std::move(attributes), name, role)[0];
  }

  ValueId Embedding(ValueId table_VD, ValueId index_T, int64_t offset, const std::string& name);
  ValueId Linear(ValueId x_TI, ValueId w_OI, ValueId bias_O /* or kNoValue */, const std::string& name);
  ValueId Sum(ValueId a, ValueId b, const std::string& name);
  // `x` itself where the factor is 1.
  ValueId Scale(ValueId x, double factor, const std::string& name);
  struct RmsNormForm {
    bool grouped = false;   // a norm for every E elements of a row, of a scale w_E
    bool plus_one = false;  // 1 + w scales
  };
  ValueId RmsNorm(ValueId x_TD, ValueId w_D, double eps, const std::string& name, RmsNormForm form);
  ValueId RmsNorm(ValueId x_TD, ValueId w_D, double eps, const std::string& name) {
    return RmsNorm(x_TD, w_D, eps, name, RmsNormForm());
  }
  ValueId LayerNorm(ValueId x_TD, ValueId w_D, ValueId b_D, double eps, const std::string& name);
  // `first`: the element of a head with which what turns begins.
  ValueId Rope(ValueId x, ValueId table_TR, int64_t head_dim, bool interleaved, const std::string& name,
               int64_t first = 0);
  // Gelu by erf, or its approximation by tanh.
  enum class Gate : uint8_t { kSilu, kGelu, kGeluTanh, kSigmoid, kIdentity };
  ValueId Glu(ValueId gate_TF, ValueId up_TF, const std::string& name, Gate gate = Gate::kSilu);
  ValueId SliceRows(ValueId x_TD, int64_t begin, int64_t count, const std::string& name);

  const TensorType& type(ValueId id) const { return graph_->value(id).type; }
  Graph& graph() { return *graph_; }

 private:
  Graph* const graph_;
  int block_ = kBlockBefore;
  Phase phase_ = Phase::kForward;
  std::string prefix_;
};

}  // namespace temper

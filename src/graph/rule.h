// The rule of an op: output types, gradient, sharding, cost, and every other fact that passes need. One file per op in
// graph/ops/; registry.cc puts them in a table in the order of op_list.inc.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/flow.h"
#include "graph/graph.h"
#include "graph/model_work.h"
#include "tensor/context_part.h"

namespace temper {

// Arithmetic and memory traffic of one execution, from shapes alone. Each operand's bytes count once.
struct Cost {
  Flops flops;
  Bytes read, written;
  Bytes sent;  // to other ranks
  Cost& operator+=(const Cost& c) {
    flops += c.flops;
    read += c.read;
    written += c.written;
    sent += c.sent;
    return *this;
  }
};

using Types = std::vector<TensorType>;

// An attribute of an op. Flags are 0 or 1; sizes are integers >= 0; absent means 0, 0.0 or "" unless required.
struct AttributeSpec {
  enum class Kind : uint8_t { kFlag, kSize, kDouble, kString, kDoubles };
  const char* key;
  Kind kind;
  bool required = false;
};

// What a gradient rule may do: see the gradients of the node's outputs, emit backward nodes, deliver gradients of the
// node's inputs. Implemented by compile/differentiate.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual const Node& node() const = 0;
  virtual const Value& value(ValueId id) const = 0;
  // Gradient of output `i`; kNoValue where no path to the loss uses it.
  virtual ValueId OutputGradient(int i) const = 0;
  // Whether a path from input `i` reaches a trainable value.
  virtual bool Needs(int input) const = 0;
  // The sum of the contributions to input `i` delivered so far (by later nodes of the forward pass, and for trainable
  // values by earlier micro-batches), or kNoValue. A rule takes it as its `acc` operand if it can.
  virtual ValueId Pending(int input) const = 0;
  // Pending(i) if it exists before the step's first node, from earlier micro-batches alone. Else kNoValue.
  virtual ValueId PendingBefore(int input) const = 0;
  // Emits a node and returns its outputs, whose types come from the op's shape rule.
  virtual std::vector<ValueId> Emit(Op op, std::vector<ValueId> inputs, Attributes attributes) = 0;
  // Declares `gradient` to be the gradient of input `i` so far, Pending(i) included.
  virtual void Deliver(int input, ValueId gradient) = 0;
  // As Deliver, for a contribution without Pending(i): adds the two.
  virtual void Contribute(int input, ValueId gradient) = 0;
  // For an op whose forward pass also makes the gradients (OpRule::only_root): replaces the node's attributes and
  // inputs and appends outputs; returns the new outputs.
  virtual std::vector<ValueId> Extend(std::vector<ValueId> inputs, Attributes attributes) = 0;
};

// Two ways to shard an op, compared by what a rank sends to others in a micro-batch, forward and backward.
struct Alternatives {
  std::string what;           // "embedding model.embed_tokens.weight"
  std::string first, second;  // "table", "rows"
  AxisSet axes;               // over which it is sent
  Bytes sent_first, sent_second;
};

// What a sharding rule may do: see the shardings of the node's inputs, request others (which inserts collectives),
// emit the op on this rank's parts, and state the shardings of its outputs. Implemented by compile/mesh/partition.
// Nodes and values are the global graph's; ids that Use, Emit and Settle return are the local one's.
class ShardingSink {
 public:
  virtual ~ShardingSink() = default;
  virtual const Node& node() const = 0;
  virtual const Value& value(ValueId id) const = 0;
  virtual const Mesh& mesh() const = 0;
  // The sharding of input `i`; for a weight that in which it is stored.
  virtual const Sharding& sharding(int input) const = 0;
  // This rank's part of a tensor of that shape.
  virtual Box box(const Shape& global, const Sharding& sharding) const = 0;
  // How the tokens of packed rows are dealt to this rank over cp. REQUIRES: cp is an axis of the mesh.
  virtual ContextPart context() const = 0;
  // Input `i` in another sharding. Possible are: a split dim gathered (then varying), a sum settled, a whole value made
  // varying; otherwise the run is refused.
  virtual ValueId Use(int input, const Sharding& wanted) = 0;
  // How the last node of this block that took input `i` took it: its sharding, and the value. For an op without a
  // gradient that reads what others of the block read: no rank sends anything more for it, and a weight's gradient is
  // added up as without it. REQUIRES: there is such a node.
  virtual const Sharding& used(int input) const = 0;
  virtual ValueId UseAgain(int input) = 0;
  // The sharding of `p` with its partial sums added up: into whole values, or split like the residual stream.
  virtual Sharding Settled(const Sharding& p) const = 0;
  // Emits an op on local values. `outputs`: their shardings; the outputs have the global shapes of the node's outputs.
  virtual std::vector<ValueId> Emit(Op op, std::vector<ValueId> inputs, Attributes attributes,
                                    const std::vector<Sharding>& outputs) = 0;
  // A value that Emit returned, in another sharding.
  virtual ValueId Convert(ValueId local, const Sharding& wanted) = 0;
  // Declares `local` to be output `i` of the node.
  virtual void Deliver(int output, ValueId local) = 0;
  // Whether to take the second way. The sizes must be those of all ranks, so that all decide alike.
  virtual bool TakesSecond(const Alternatives& ways) = 0;
  // Whether a product should gather its weight where tensor ranks share the tokens of its other operand: ranks then
  // make all columns for their own tokens' rows, instead of all rows for their part of the columns.
  virtual bool TakesWholeWeight() const = 0;
  // The run cannot be sharded like this; the message says what does not divide what, and what would work.
  virtual void Refuse(std::string why) = 0;
};

// What bounds an op's time, and for memory-bound ops the access pattern.
enum class OpKind : uint8_t {
  kUnstated,     // refused by rule_facts_test.cc
  kElementwise,  // memory: an element of an output depends only on the operands' elements in its place
  kMemory,       // memory: norms, reductions, tables
  kProduct,      // arithmetic, of a matrix product: OpRule::product
  kAttention,    // arithmetic, of pairs of tokens
  kCollective,   // other ranks
};

// Rows, columns and inner dim of a product's result.
struct ProductDims {
  int64_t rows = 0, columns = 0, inner = 0;
};

// Whether the backward recomputes a forward op instead of keeping its outputs (compile/memory/selective.h).
enum class RecomputeCost : uint8_t {
  kUnstated,   // for ops without a gradient: they are not recomputed
  kCheap,      // it moves its operands and does little more
  kExpensive,  // it computes, or needs other ranks
};

// Operands with which calibration times an op.
struct MeasuredCase {
  Types inputs;
  Attributes attributes;
};

// The input that may be packed, and the layout in which kernels read it.
struct PackedInput {
  int input = -1;  // -1: none may
  ElementLayout layout = ElementLayout::kRowMajor;
  // For an op that computes its gradient itself, and reads the matrix again for it: the attribute that asks for that
  // gradient, and the attribute that says that the last input is the same matrix in kRowPairs. nullptr: it reads the
  // matrix once.
  const char *gradient = nullptr, *of_gradient = nullptr;
  // How often one run of the op goes over the matrix in each layout; nullptr: once.
  int64_t (*times)(const Types& inputs, const Attributes& attributes) = nullptr;
};

struct UpdateRule;  // graph/update_rule.h

struct OpRule {
  OpKind kind = OpKind::kUnstated;
  // All attributes that a node of this op may have.
  std::span<const AttributeSpec> attributes;
  // Output types from inputs and attributes. Wrong operands are bugs of the caller: returned as an error so that a
  // Program read from text can be refused, CHECKed by the builder. REQUIRES: the attributes are as `attributes` says;
  // InferTypes checks that first.
  Result<Types> (*infer)(const Types& inputs, const Attributes& attributes) = nullptr;
  // Emits the backward of a forward node. nullptr: the op has no gradient.
  void (*gradient)(GradientSink& sink) = nullptr;
  // Its outputs are constants to the gradient, whatever its operands are. REQUIRES: it has no `gradient`.
  bool detached = false;
  // Output 0 is a loss, and `gradient` makes the gradients of its sum (GradientSink::Extend): it is a root of its
  // graph, and nothing else.
  bool only_root = false;
  // Shards a forward node over a mesh. nullptr: the op does not occur in graphs that are partitioned.
  void (*shard)(ShardingSink& sink) = nullptr;
  // nullptr: collectives, which have rules of their own, and ops that never run on a mesh. Of a node: FlowOf.
  const FlowRule* flow = nullptr;
  Cost (*cost)(const Types& inputs, const Types& outputs, const Attributes& attributes) = nullptr;
  // An upper bound on the scratch that a kernel may use with that many threads. Kernels get exactly this much.
  Bytes (*workspace)(const Types& inputs, const Types& outputs, const Attributes& attributes, int threads) = nullptr;
  // Output 0 may overwrite this input if nothing uses the input later (-1: never).
  int in_place_input = -1;
  // The input that another output may overwrite (accumulators, states, caches), or -1; nullptr: none may.
  int (*overwrites)(const Attributes& attributes, int num_inputs, int output) = nullptr;
  // Of an op that keeps a state from step to step of decoding: whether the state of a sequence is also that of its
  // beginnings, so that decoding can go back. A cache's is, of which fewer rows are read; a recurrent state's is not.
  bool rewinds = true;
  // For collectives: how often the ranks of a ring pass data to their neighbours, one after another, in a group of
  // `ranks`. nullptr: never.
  int (*turns)(int ranks) = nullptr;
  // A softmax over the head's logits, in chunks of rows, that keeps only its value for the target.
  bool on_logits = false;
  // For OpKind::kProduct only.
  ProductDims (*product)(const Types& inputs) = nullptr;
  PackedInput packed = {};
  RecomputeCost recompute = RecomputeCost::kUnstated;
  // Draws random numbers, keyed by Node::rng_name; takes the `rng` input.
  bool random = false;
  // Adds the arithmetic that a model requires of a forward node. nullptr: none; products and attention have some.
  void (*model_work)(const Types& inputs, const Attributes& attributes, ModelWork* work) = nullptr;
  // Bytes that a kernel reads or writes again, beyond its cost, because it works on smaller blocks than calibration
  // measured. nullptr: none.
  Bytes (*moved_again)(const Types& inputs, const Attributes& attributes) = nullptr;
  // The bytes of `cost` that a separate kernel moves before the op's arithmetic: a pass over memory. nullptr: none.
  Bytes (*moved_before)(const Types& inputs, const Attributes& attributes) = nullptr;
  // The op of an optimizer.
  const UpdateRule* update = nullptr;
  // How its rate is measured (`temper doctor --calibrate`): with these operands, for activations of `dtype` (none: not
  // in that dtype), or as another op, whose rate it then has. With neither it has its class's rate.
  std::vector<MeasuredCase> (*measured)(DType dtype) = nullptr;
  std::optional<Op> measured_as;
};

const OpRule& RuleOf(Op op);
const FlowRule* FlowOf(const Node& node);
inline bool IsLoss(Op op) {
  return RuleOf(op).on_logits;
}

// The input that output `output` of an op may overwrite, or -1.
int OverwritableInput(Op op, const Attributes& attributes, int num_inputs, int output);

// The output types of an op, or an error for attributes or operands that do not fit.
Result<Types> InferTypes(Op op, const Types& inputs, const Attributes& attributes);

Cost CostOf(const Graph& graph, const Node& node);
Bytes WorkspaceOf(const Graph& graph, const Node& node, int threads);
Types TypesOf(const Graph& graph, std::span<const ValueId> ids);

// A cost that only moves its operands, with `flops_per_element` of output 0: for elementwise ops.
Cost ElementwiseCost(const Types& inputs, const Types& outputs, double flops_per_element);
// Error for operands that do not fit: names the op, what it expected and what it got.
Status BadOperands(Op op, const char* wanted, const Types& inputs, const Attributes& attributes);

}  // namespace temper

#include "compile/mesh/partition.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "compile/mesh/feed_forward.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// A value of the local graph, with the shape of the global value that it is part of.
struct Local {
  ValueId id = kNoValue;
  Shape global;
  Sharding sharding;
};

bool IsInput(Role role) {
  return role == Role::kInput || role == Role::kOutput;
}

// "96, 98": the multiples of `unit` on both sides of `size`.
std::string MultiplesNear(int64_t size, int64_t unit) {
  const int64_t below = size / unit * unit;
  return fmt::format("{}{}", below > 0 ? fmt::format("{}, ", below) : "", below + unit);
}

// The divisors of `size` on both sides of `ranks`, which is no divisor.
std::string DivisorsNear(int64_t size, int64_t ranks) {
  int64_t below = std::min(ranks, size), above = ranks;
  while (size % below != 0) --below;
  while (above < size && size % above != 0) ++above;
  return fmt::format("{}{}", below, above <= size ? fmt::format(", {}", above) : "");
}

class Partitioner final : public ShardingSink {
 public:
  Partitioner(const Graph& forward, const PartitionSpec& spec)
      : graph_(forward), spec_(spec), axes_(spec.mesh.axes()), tokens_(TokenAxes(spec.mesh)) {
    local_.nodes().reserve(forward.nodes().size() * 3 / 2);
    if (spec.options.mlp == MlpMove::kWeights) whole_weights_ = FeedForwardProducts(forward, *spec.weights);
  }

  Result<Graph> Run() {
    TEMPER_RETURN_IF_ERROR(DealRows());
    const auto routes = [](const Node& node) { return node.op == Op::kRoute; };
    if (spec_.mesh.size(Axis::kEp) > 1 && std::none_of(graph_.nodes().begin(), graph_.nodes().end(), routes)) {
      return InvalidArgument(fmt::format("mesh {}: ep deals experts to ranks, and this model has none: use mesh.fsdp",
                                         spec_.mesh.ToString()));
    }
    MarkDifferentiable();
    for (const Node& node : graph_.nodes()) {
      node_ = &node;
      for (ValueId id : node.inputs) TEMPER_RETURN_IF_ERROR(AddSource(id));
      void (*rule)(ShardingSink&) = RuleOf(node.op).shard;
      TEMPER_CHECK(rule != nullptr) << ToString(node.op) << " has no sharding rule";
      rule(*this);
      if (!refused_.ok()) return refused_;
    }
    for (const LossRoot& root : graph_.roots()) {
      if (root.seed != kNoValue) TEMPER_RETURN_IF_ERROR(AddSource(root.seed));
      local_.roots().push_back({of_.at(root.loss).id, root.seed == kNoValue ? kNoValue : of_.at(root.seed).id});
    }
    for (const auto& [id, axes] : gradient_axes_) {
      Value& weight = local_.value(id);
      weight.shard->partial = axes;
      // Its gradient would be whole from one use and a partial sum from another.
      if (const auto whole = whole_uses_.find(id); whole != whole_uses_.end() && !(whole->second & axes).empty()) {
        return InvalidArgument(fmt::format(
            "mesh {}: {} is used in different ways along {}: give it a sharding rule that splits it there, or "
            "none of the two that share it{}",
            spec_.mesh.ToString(), weight.name, (whole->second & axes).ToString(),
            GivenRules([&](const Node&, ValueId used) { return graph_.value(used).name == weight.name; })));
      }
    }
    return std::move(local_);
  }

  const Node& node() const override { return *node_; }
  const Value& value(ValueId id) const override { return graph_.value(id); }
  const Mesh& mesh() const override { return spec_.mesh; }
  ContextPart context() const override { return context_; }
  const Sharding& sharding(int input) const override { return OfInput(input).sharding; }
  Box box(const Shape& global, const Sharding& p) const override { return BoxOf(global, p, spec_.mesh, spec_.rank); }

  ValueId Use(int input, const Sharding& wanted) override {
    const ValueId id = node_->inputs[static_cast<size_t>(input)];
    const ValueId local = Reach(id, OfInput(input), wanted);
    used_[{id, node_->block}] = {local, wanted};
    return local;
  }
  const Sharding& used(int input) const override { return OfUse(input).second; }
  ValueId UseAgain(int input) override { return OfUse(input).first; }

  Sharding Settled(const Sharding& p) const override {
    Sharding settled = p;
    settled.partial = {};
    for (const Axis axis : p.partial.axes()) {
      // Ranks of ep have tokens of their own.
      if (spec_.residual == ResidualSplit::kTokens || axis == Axis::kEp) {
        settled.dims[0].push_back(axis);
        continue;
      }
      if (spec_.residual == ResidualSplit::kHidden) settled.dims[1].push_back(axis);
    }
    return settled;
  }

  std::vector<ValueId> Emit(Op op, std::vector<ValueId> inputs, Attributes attributes,
                            const std::vector<Sharding>& outputs) override {
    std::vector<ValueId> ids;
    if (!refused_.ok()) {
      ids.assign(outputs.size(), inputs[0]);
      return ids;
    }
    Result<Types> types = InferTypes(op, TypesOf(local_, inputs), attributes);
    if (!types.ok()) {
      Refuse(types.status().message());
      ids.assign(outputs.size(), inputs[0]);
      return ids;
    }
    TEMPER_CHECK(types->size() == outputs.size()) << ToString(op) << " shardings";
    Node node{.op = op,
              .inputs = std::move(inputs),
              .attributes = std::move(attributes),
              .block = node_->block,
              .phase = node_->phase,
              .rng_name = node_->rng_name};
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value& like = graph_.value(node_->outputs[i]);
      const Shape expected = box(like.type.shape, outputs[i]).shape;
      TEMPER_CHECK((*types)[i].shape == expected)
          << ToString(op) << " " << like.name << " gives " << (*types)[i].ToString() << ", its sharding "
          << outputs[i].ToString(expected.rank()) << " says " << expected.ToString();
      ids.push_back(local_.AddValue({.name = like.name, .type = (*types)[i]}));
      locals_[ids.back()] = {ids.back(), like.type.shape, outputs[i]};
    }
    node.outputs = ids;
    local_.AddNode(std::move(node));
    return ids;
  }

  ValueId Convert(ValueId local, const Sharding& wanted) override {
    if (!refused_.ok()) return local;
    return Reach(node_->outputs[0], locals_.at(local), wanted);
  }

  void Deliver(int output, ValueId local) override {
    if (!refused_.ok()) return;
    const ValueId id = node_->outputs[static_cast<size_t>(output)];
    Value& v = local_.value(local);
    v.name = graph_.value(id).name;
    v.role = graph_.value(id).role;
    of_[id] = locals_.at(local);
  }

  bool TakesSecond(const Alternatives& ways) override {
    bool second = ways.sent_second < ways.sent_first;
    std::string reason = "it sends less";
    const auto earlier = spec_.options.kept.find(ways.what);
    if (spec_.options.embedding != EmbeddingMove::kAuto) {
      second = spec_.options.embedding == EmbeddingMove::kRows;
      reason = "requested";
    } else if (earlier != spec_.options.kept.end()) {
      second = earlier->second == ways.second;
      reason = "same as the resumed run";
    }
    if (spec_.decisions != nullptr) {
      const Bytes taken = (second ? ways.sent_second : ways.sent_first) * spec_.micro_batches;
      const Bytes other = (second ? ways.sent_first : ways.sent_second) * spec_.micro_batches;
      spec_.decisions->push_back({.what = ways.what,
                                  .chosen = second ? ways.second : ways.first,
                                  .rejected = second ? ways.first : ways.second,
                                  .sent = taken,
                                  .sent_otherwise = other,
                                  .time = LinkTime(taken, ways.axes),
                                  .time_otherwise = LinkTime(other, ways.axes),
                                  .reason = std::move(reason)});
    }
    return second;
  }

  bool TakesWholeWeight() const override { return whole_weights_.contains(node_); }

  void Refuse(std::string why) override {
    if (refused_.ok()) {
      refused_ = InvalidArgument(
          fmt::format("mesh {}: {} {}: {}{}", spec_.mesh.ToString(), ToString(node_->op), OfBlock(node_->block), why,
                      GivenRules([&](const Node& node, ValueId) { return node.block == node_->block; })));
    }
  }

 private:
  // "; your rules: X shards ...", for weights used by the nodes that `concerned` selects. "" if there are none.
  template <class Concerned>
  std::string GivenRules(const Concerned& concerned) const {
    std::map<std::string, std::string> weight_of;  // by rule name: one weight that it shards
    for (const Node& node : graph_.nodes()) {
      for (const ValueId id : node.inputs) {
        if (spec_.given_rules == nullptr || !concerned(node, id)) continue;
        const auto it = spec_.given_rules->find(graph_.value(id).name);
        if (it != spec_.given_rules->end()) weight_of.try_emplace(it->second, it->first);
      }
    }
    std::string text;
    for (const auto& [rule, weight] : weight_of) {
      text += fmt::format("{}{} shards {}", text.empty() ? "; your rules: " : ", ", rule, weight);
    }
    return text;
  }

  const std::pair<ValueId, Sharding>& OfUse(int input) const {
    const ValueId id = node_->inputs[static_cast<size_t>(input)];
    const auto found = used_.find({id, node_->block});
    TEMPER_CHECK(found != used_.end()) << graph_.value(id).name << " is not used before " << ToString(node_->op);
    return found->second;
  }
  const Local& OfInput(int input) const { return of_.at(node_->inputs[static_cast<size_t>(input)]); }

  // The length of packed rows comes from the ops in which tokens attend to each other.
  Status DealRows() {
    const int ranks = spec_.mesh.size(Axis::kCp);
    if (ranks == 1) return OkStatus();
    for (const Node& node : graph_.nodes()) {
      const FlowRule* const flow = FlowOf(node);
      if (flow != nullptr && flow->together.Has(Axis::kCp)) context_.row = node.attributes.IntOr("row", 0);
    }
    context_ = ContextPartOf(spec_.mesh, spec_.rank, context_.row);
    if (ContextPart::Divides(context_.row, ranks)) return OkStatus();
    return InvalidArgument(
        fmt::format("mesh {}: rows of {} tokens (max_seq_len) do not divide into {} chunks, two for each rank of cp; "
                    "lengths near it that do: {}",
                    spec_.mesh.ToString(), context_.row, 2 * ranks, MultiplesNear(context_.row, 2 * ranks)));
  }

  // Marks values that will need a gradient. Others need no broadcast node, however they are used.
  void MarkDifferentiable() {
    differentiable_.assign(static_cast<size_t>(graph_.num_values()), false);
    for (ValueId id = 0; id < graph_.num_values(); ++id)
      differentiable_[static_cast<size_t>(id)] = graph_.value(id).trainable;
    for (const Node& node : graph_.nodes()) {
      const bool reaches = !RuleOf(node.op).detached &&
                           std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId id) { return differentiable_[static_cast<size_t>(id)]; });
      for (ValueId id : node.outputs) differentiable_[static_cast<size_t>(id)] = reaches;
    }
  }

  // Inputs hold this rank's tokens; weights have the shardings of the rules.
  Status AddSource(ValueId id) {
    if (of_.contains(id)) return OkStatus();
    Value v = graph_.value(id);
    Sharding p;
    if (IsInput(v.role)) {
      if (v.per_token) {
        p.dims[0] = tokens_.axes();
        if (v.type.shape[0] % spec_.mesh.size(tokens_) != 0) {
          return InvalidArgument(
              fmt::format("mesh {}: {} tokens per micro-batch (rows x max_seq_len) of {} do not divide among {} "
                          "ranks; numbers near it that do: {}",
                          spec_.mesh.ToString(), v.type.shape[0], v.name, spec_.mesh.size(tokens_),
                          MultiplesNear(v.type.shape[0], spec_.mesh.size(tokens_))));
        }
      } else {
        p.varying = tokens_;
      }
    } else if (v.role == Role::kConstant) {
      // Every rank makes the same value: it may be used in any way.
    } else {
      const auto it = spec_.weights->find(v.name);
      TEMPER_CHECK(it != spec_.weights->end()) << "no sharding of " << v.name;
      p = it->second;
    }
    const Shape global = v.type.shape;
    const Box part = box(global, p);
    v.type.shape = part.shape;
    if (!IsInput(v.role) && v.role != Role::kConstant) v.shard = Shard{global, part.begin, p.split(), {}};
    of_[id] = {local_.AddValue(std::move(v)), global, p};
    locals_[of_[id].id] = of_[id];
    return OkStatus();
  }

  // Converts `from` to the sharding `wanted`, by collectives that are made once per (value, sharding).
  ValueId Reach(ValueId global_id, const Local from, const Sharding& wanted) {
    if (!refused_.ok()) return from.id;
    Local at = from;
    whole_uses_[at.id] |= axes_ - wanted.varying - wanted.partial - at.sharding.split();
    if (at.sharding == wanted) return at.id;
    // Every block gathers the weights that it uses, so that no gathered weight lives longer than a block; and inputs
    // that ranks of ep gather, so that a stage of a pipeline has them.
    const Value& source = local_.value(at.id);
    const bool each = source.shard || (IsInput(source.role) && at.sharding.split(0).Has(Axis::kEp));
    const int block = each ? node_->block : kBlockBefore;
    const auto key = std::make_tuple(at.id, block, wanted.ToString(Shape::kMaxRank));
    if (const auto it = converted_.find(key); it != converted_.end()) return it->second;

    // Make sums first: a value split along an axis varies along it, also after a gather.
    if (const AxisSet sums = at.sharding.partial - wanted.partial; !sums.empty()) {
      at = AddUp(at, sums, wanted);
      // Later uses find the sum, not its terms: the residual stream should not live on as terms.
      if (const auto it = of_.find(global_id); it != of_.end() && it->second.id == from.id) it->second = at;
      return converted_[key] = Reach(global_id, at, wanted);
    }
    const AxisSet vary = wanted.varying - at.sharding.varying - at.sharding.split();
    if (!vary.empty()) at = Vary(global_id, at, vary);
    for (int dim = 0; dim < Shape::kMaxRank && refused_.ok(); ++dim) {
      const AxisSet gather = at.sharding.split(dim) - wanted.split(dim);
      if (!gather.empty()) at = GatherDim(at, dim, gather);
    }
    if (refused_.ok() && !(at.sharding == wanted)) {
      const int rank = at.global.rank();
      Refuse(fmt::format("{} is split '{}' and cannot be converted to '{}'; mesh.tp_mode 1d has no such conversion",
                         graph_.value(global_id).name, from.sharding.ToString(rank), wanted.ToString(rank)));
    }
    return converted_[key] = at.id;
  }

  // Sums `at` over these axes. The result is split if `wanted` is; or, if `wanted` is whole in the end, split like the
  // residual stream (a reduce_scatter and an all_gather move as many bytes as an all_reduce); else whole.
  Local AddUp(Local at, AxisSet sums, const Sharding& wanted) {
    const Sharding settled = Settled(at.sharding);
    for (int dim = 0; dim < at.global.rank(); ++dim) {
      const AxisSet scattered = (wanted.split(dim) | (settled.split(dim) & wanted.varying)) & sums;
      if (scattered.empty()) continue;
      Sharding p = at.sharding;
      p.partial = p.partial - scattered;
      for (const Axis axis : scattered.axes()) p.dims[static_cast<size_t>(dim)].push_back(axis);
      if (!CheckDivides(at, dim, scattered)) return at;
      at = Collective(TrafficOp::kReduceScatter, at, p, dim, scattered);
      sums = sums - scattered;
    }
    if (sums.empty()) return at;
    Sharding p = at.sharding;
    p.partial = p.partial - sums;
    return Collective(TrafficOp::kAllReduce, at, p, -1, sums);
  }

  Local GatherDim(Local at, int dim, AxisSet gather) {
    const std::vector<Axis>& axes = at.sharding.dims[static_cast<size_t>(dim)];
    if (const TensorType& type = local_.value(at.id).type; dim > 0 && type.dtype.quantised()) {
      Refuse(
          fmt::format("the columns of {} are split over {} and would have to be gathered, but as {} it has a scale "
                      "per row: split its rows by a sharding rule, or remove base_dtype or embedding_dtype",
                      local_.value(at.id).name, gather.ToString(), ToString(type.dtype)));
      return at;
    }
    // Parts are in the order of a group's ranks only if the gathered axes are the innermost, in mesh order: otherwise
    // gather in several steps, from the inside.
    while (!gather.empty()) {
      AxisSet together;
      size_t n = axes.size();
      while (n > 0 && gather.Has(axes[n - 1]) && (together.empty() || axes[n - 1] < axes[n])) together |= axes[--n];
      if (together.empty()) {
        Refuse(fmt::format("{} cannot be gathered over {}: it is split {}", local_.value(at.id).name, gather.ToString(),
                           at.sharding.ToString(at.global.rank())));
        return at;
      }
      Sharding p = at.sharding;
      p.dims[static_cast<size_t>(dim)].resize(n);
      p.varying |= together;
      at = Collective(TrafficOp::kAllGather, at, p, dim, together);
      gather = gather - together;
    }
    return at;
  }

  Local Vary(ValueId global_id, const Local& at, AxisSet axes) {
    Sharding p = at.sharding;
    p.varying |= axes;
    const Value& v = local_.value(at.id);
    if (v.shard && v.trainable) {
      // Gradients of a weight are summed once per step (compile/mesh/grad_sync.h).
      gradient_axes_[at.id] |= axes;
    } else if (differentiable_[static_cast<size_t>(global_id)]) {
      return Collective(TrafficOp::kBroadcast, at, p, -1, axes);
    }
    return {at.id, at.global, p};
  }

  bool CheckDivides(const Local& at, int dim, AxisSet axes) {
    const Value& v = local_.value(at.id);
    const int64_t size = v.type.shape[dim], ranks = spec_.mesh.size(axes);
    if (size % ranks == 0) return true;
    // The number of tokens is an option of the run; columns are given by the model.
    Refuse(dim == 0
               ? fmt::format("{} tokens per micro-batch (rows x max_seq_len) of {} do not divide among {} ranks of {}; "
                             "numbers near it that do: {}",
                             size, v.name, ranks, axes.ToString(), MultiplesNear(size, ranks))
               : fmt::format("{} columns of {} do not divide among {} ranks of {}; sizes of {} near it that do: {}",
                             size, v.name, ranks, axes.ToString(), axes.ToString(), DivisorsNear(size, ranks)));
    return false;
  }

  Local Collective(Op op, const Local& at, const Sharding& to, int dim, AxisSet axes) {
    Attributes attributes = {{"axes", axes.ToString()}, {"ranks", int64_t{spec_.mesh.size(axes)}}};
    TensorType type = local_.value(at.id).type;
    type.shape = box(at.global, to).shape;
    if (dim >= 0) {
      attributes.Set("dim", int64_t{dim});
      attributes.Set("sizes", std::vector<double>{static_cast<double>(type.shape[dim])});
    }
    if (op == TrafficOp::kReduceScatter) attributes.Set("acc", int64_t{0});
    const std::string name = local_.value(at.id).name + "." + std::string(ToString(op));
    const ValueId out = local_.AddValue({.name = name, .type = type});
    local_.AddNode({.op = op,
                    .inputs = {at.id},
                    .outputs = {out},
                    .attributes = std::move(attributes),
                    .block = node_->block,
                    .phase = node_->phase});
    locals_[out] = {out, at.global, to};
    return locals_[out];
  }

  const Graph& graph_;
  const PartitionSpec& spec_;
  const AxisSet axes_, tokens_;
  std::set<const Node*> whole_weights_;  // feed-forward products that use their whole weight
  ContextPart context_;
  const Node* node_ = nullptr;
  Graph local_;
  std::vector<bool> differentiable_;                                      // per global value
  std::map<ValueId, Local> of_;                                           // per global value
  std::map<ValueId, Local> locals_;                                       // per local value
  std::map<std::tuple<ValueId, int, std::string>, ValueId> converted_;    // per (local value, block, sharding)
  std::map<std::pair<ValueId, int>, std::pair<ValueId, Sharding>> used_;  // per (global value, block): its last use
  std::map<ValueId, AxisSet> gradient_axes_, whole_uses_;                 // per local value: the axes of these uses
  Status refused_;
};

}  // namespace

AxisSet DataAxes(const Mesh& mesh) {
  return mesh.axes() & AxisSet{Axis::kDp, Axis::kFsdp, Axis::kEp, Axis::kDepth, Axis::kRow};
}

AxisSet TokenAxes(const Mesh& mesh) {
  return DataAxes(mesh) | (mesh.axes() & AxisSet(Axis::kCp));
}

ContextPart ContextPartOf(const Mesh& mesh, int rank, int64_t row) {
  return {.row = row, .ranks = mesh.size(Axis::kCp), .index = mesh.Coordinate(rank, Axis::kCp)};
}

Result<Graph> Partition(const Graph& forward, const PartitionSpec& spec) {
  return Partitioner(forward, spec).Run();
}

}  // namespace temper

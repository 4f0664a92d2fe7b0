#include "compile/grad_sync.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "graph/rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// More memory than this part of what a rank keeps anyway is not taken unasked.
constexpr double kSpare = 0.1;

std::string WholeName(const std::string& weight, int use) {
  return use == 0 ? weight + ".whole" : fmt::format("{}.whole.{}", weight, use);
}

Bytes F32BytesOf(const Shape& shape) {
  return TensorType{DType::kF32, shape}.bytes();
}

}  // namespace

std::vector<GatheredUse> GatheredUses(const Graph& local) {
  std::map<ValueId, GatheredUse> at;          // by what was gathered so far
  std::set<ValueId> used_otherwise;           // weights that something else than a gather reads
  std::map<ValueId, std::set<ValueId>> ends;  // of each weight: gathered values that something computes with
  for (const Node& node : local.nodes()) {
    for (const ValueId id : node.inputs) {
      const bool gathers = node.op == Op::kAllGather;
      const bool weight = local.value(id).trainable;
      if (gathers && (weight || at.contains(id))) {
        GatheredUse use = weight ? GatheredUse{.weight = id} : at.at(id);
        use.gathers.push_back(&node);
        at[node.outputs[0]] = std::move(use);
      } else if (weight) {
        used_otherwise.insert(id);
      } else if (const auto it = at.find(id); it != at.end()) {
        ends[it->second.weight].insert(id);
      }
    }
  }
  std::vector<GatheredUse> uses;
  for (const auto& [weight, whole] : ends) {
    if (used_otherwise.contains(weight)) continue;
    for (const ValueId id : whole) uses.push_back(at.at(id));
  }
  return uses;
}

std::string WholeGradientName(const std::string& weight, int use) {
  return GradientName(WholeName(weight, use));
}

Graph TrainGathered(const Graph& local) {
  Graph marked = local;
  std::map<ValueId, int> count;
  for (const GatheredUse& use : GatheredUses(local)) {
    marked.value(use.weight).trainable = false;
    Value& whole = marked.value(use.whole());
    whole.trainable = true;
    whole.name = WholeName(local.value(use.weight).name, count[use.weight]++);
  }
  return marked;
}

void RestoreTrainable(const Graph& local, Graph* differentiated) {
  for (ValueId id = 0; id < local.num_values(); ++id) differentiated->value(id).trainable = local.value(id).trainable;
}

GradSync DecideGradSync(const Graph& local, int micro_batches, const DecisionOptions& options,
                        std::vector<Decision>* decisions) {
  const auto uses = GatheredUses(local);
  if (uses.empty() || micro_batches == 1) return GradSync::kMicroBatch;
  Bytes extra, sent, kept;
  AxisSet axes;
  for (const GatheredUse& use : uses) {
    extra += F32BytesOf(local.value(use.whole()).type.shape) - F32BytesOf(local.value(use.weight).type.shape);
    for (const Node* gather : use.gathers) {
      const auto over = AxisSet::Parse(gather->attributes.String("axes"));
      TEMPER_CHECK(over.ok()) << over.status().message();
      axes |= *over;
      const int64_t ranks = gather->attributes.Int("ranks");
      sent += F32BytesOf(local.value(gather->outputs[0]).type.shape) * (ranks - 1) / ranks;
    }
  }
  for (ValueId id = 0; id < local.num_values(); ++id) {
    const Value& v = local.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    kept += v.type.bytes();
    // Gradient, both moments and, of what is not f32 itself, a master copy.
    const int64_t copies = v.type.dtype == DType::kF32 ? 3 : 4;
    if (v.trainable) kept += F32BytesOf(v.type.shape) * copies;
  }
  GradSync choice = options.grad_sync;
  std::string reason = "as asked for";
  const auto earlier = options.kept.find("grad_sync");
  if (choice == GradSync::kAuto && earlier != options.kept.end()) {
    choice = earlier->second == "step" ? GradSync::kStep : GradSync::kMicroBatch;
    reason = "as in the run so far";
  } else if (choice == GradSync::kAuto) {
    const double part = static_cast<double>(extra.v) / static_cast<double>(kept.v);
    choice = part <= kSpare ? GradSync::kStep : GradSync::kMicroBatch;
    reason =
        fmt::format("whole gradients take {} more, {:.1f} % of what a rank keeps (up to {:.0f} % are taken unasked)",
                    ToString(extra), part * 100, kSpare * 100);
  }
  const Bytes each = sent * micro_batches;
  const bool step = choice == GradSync::kStep;
  decisions->push_back({.what = "grad_sync",
                        .chosen = step ? "step" : "micro_batch",
                        .rejected = step ? "micro_batch" : "step",
                        .sent = step ? sent : each,
                        .sent_otherwise = step ? each : sent,
                        .time = LinkTime(step ? sent : each, axes),
                        .time_otherwise = LinkTime(step ? each : sent, axes),
                        .reason = std::move(reason)});
  return choice;
}

}  // namespace temper

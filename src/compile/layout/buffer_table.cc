#include "compile/layout/buffer_table.h"

#include <fmt/core.h>

#include "base/env.h"
#include "compile/layout/layout.h"

namespace temper {
namespace {

// Programs read and write their own: they have a buffer for each name and size.
bool IsOfOneProgram(Role role) {
  return role == Role::kInput || role == Role::kOutput;
}

// Inputs and outputs: decoding steps, and steps of shorter rows, differ in tokens. If the step is one micro-batch,
// gradients are temporaries of its Program, `whole_step`, and have a buffer there. All else has one by name.
std::string BufferKey(const Value& root, const std::string& whole_step) {
  const bool by_type = IsOfOneProgram(root.role);
  if (root.role == Role::kGradient && !whole_step.empty()) return root.name + " of " + whole_step;
  return by_type ? root.name + " " + root.type.ToString() : root.name;
}

}  // namespace

Status BufferTable::Add(const Graph& graph, const std::string& whole_step) {
  const auto [of_graph, unknown] = of_.try_emplace(&graph);
  if (!unknown) return OkStatus();
  std::vector<size_t>& indices = of_graph->second.indices;
  const std::vector<ValueId>& roots = of_graph->second.roots = RootsOf(graph);
  indices.assign(roots.size(), kNoBuffer);
  for (const ValueId id : roots) {
    const auto at = static_cast<size_t>(id);
    const Value& root = graph.value(id);
    if (indices[at] != kNoBuffer || root.role == Role::kActivation) continue;
    const auto [it, fresh] = index_.try_emplace(BufferKey(root, whole_step), buffers_.size());
    if (fresh) {
      buffers_.push_back({root.name, root.type, root.role, root.trainable, BaseOf(root.tier), root.shard});
    }
    indices[at] = it->second;
    Buffer& known = buffers_[it->second];
    known.trainable |= root.trainable;
    if (!(known.type == root.type) || known.role != root.role || known.tier() != root.tier) {
      return Corrupt(fmt::format("buffer {} is {} {} in {} memory in one graph and {} {} in {} memory in another",
                                 root.name, known.type.ToString(), ToString(known.role), ToString(known.tier()),
                                 root.type.ToString(), ToString(root.role), ToString(root.tier)));
    }
  }
  return OkStatus();
}

void BufferTable::MakeTransient(size_t index, Bytes offset) {
  TEMPER_CHECK(!buffers_[index].transient) << buffers_[index].name << " has two offsets among temporaries";
  buffers_[index].transient = true;
  buffers_[index].offset += offset;
}

// Programs never overlap in time: inputs and outputs of one name lie where the largest of them does.
std::vector<size_t> BufferTable::SharedPlaces() const {
  std::vector<size_t> shares(buffers_.size());
  std::unordered_map<std::string, size_t> largest;  // by role and name
  const auto key = [](const Buffer& b) { return std::string(ToString(b.role)) + " " + b.name; };
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!IsOfOneProgram(buffers_[i].role)) continue;
    size_t& at = largest.try_emplace(key(buffers_[i]), i).first->second;
    if (buffers_[i].type.bytes() > buffers_[at].type.bytes()) at = i;
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    shares[i] = IsOfOneProgram(buffers_[i].role) ? largest.at(key(buffers_[i])) : i;
  }
  return shares;
}

void BufferTable::GiveOffsets() {
  const std::vector<size_t> shares = SharedPlaces();
  for (const bool whole : {true, false}) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      Buffer& buffer = buffers_[i];
      if (buffer.tier() == Tier::kDisk || buffer.transient || shares[i] != i) continue;
      if ((buffer.type.bytes().v % kDirectBlock == 0) != whole) continue;
      Bytes& end = end_[static_cast<size_t>(buffer.tier())];
      buffer.offset += end;
      end = AlignUp(end + buffer.type.bytes(), kAlignment);
    }
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (shares[i] != i) buffers_[i].offset = buffers_[shares[i]].offset;
  }
  Bytes next{};
  for (const bool frozen : {false, true}) {
    for (Buffer& buffer : buffers_) {
      if (buffer.tier() != Tier::kDisk || IsFrozen(buffer) != frozen) continue;
      buffer.offset += next;
      end_[static_cast<size_t>(Tier::kDisk)] = next + buffer.type.bytes();
      next = AlignUp(next + buffer.type.bytes(), kDirectBlock);
    }
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.transient) buffer.offset += end(buffer.tier());
  }
}

std::vector<Buffer> BufferTable::UsedBy(const std::vector<const Graph*>& graphs) const {
  std::vector<bool> used(buffers_.size(), false);
  for (const Graph* graph : graphs) {
    const OfGraph& of = of_.at(graph);
    for (const Node& node : graph->nodes()) {
      for (const auto* list : {&node.inputs, &node.outputs}) {
        for (ValueId id : *list) {
          const size_t index = of.indices[static_cast<size_t>(of.roots[static_cast<size_t>(id)])];
          if (index != kNoBuffer) used[index] = true;
        }
      }
    }
  }
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) buffers.push_back(buffers_[i]);
  }
  return buffers;
}

}  // namespace temper

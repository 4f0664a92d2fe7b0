#include "plan/live_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace temper {
namespace {

// One execution of an instruction.
struct Step {
  const Binding* binding;
  const Segment* segment;
  const Instruction* instruction;
  Bytes scratch;  // on the device
};

std::vector<Step> StepsOf(const Program& program) {
  std::vector<Step> steps;
  int last = 0;
  for (const Call& call : program.schedule) last = std::max(last, call.micro_batch);
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun || !IsShown(call.micro_batch, last)) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const Instruction& instruction = segment.instructions[i];
      const bool here = TierOf(binding.scratch[i]) == Tier::kDevice;
      steps.push_back({&binding, &segment, &instruction,
                       here ? AlignUp(ScratchOf(program, segment, instruction), kAlignment) : Bytes{}});
    }
  }
  return steps;
}

class Walker {
 public:
  explicit Walker(const Program& program) : steps_(StepsOf(program)) {
    // Temporaries are above the last permanent buffer.
    for (const Buffer& b : program.buffers) {
      if (b.tier() == Tier::kDevice && !b.transient) begin_ = std::max(begin_, b.offset + b.type.bytes());
    }
  }

  // Goes backward: inputs of an instruction are live before it, outputs are not, unless it updates them.
  LiveMemory Run() {
    LiveMemory memory;
    memory.temporaries.resize(steps_.size());
    std::unordered_map<int64_t, int64_t> live;  // offset -> bytes
    int64_t sum = 0;
    const auto add = [&](Bytes offset, Bytes size) {
      if (live.try_emplace(offset.v, size.v).second) sum += size.v;
    };
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step& s = steps_[i];
      ForTemporaries(s, s.instruction->outputs, add);
      ForTemporaries(s, s.instruction->inputs, add);
      memory.temporaries[i] = Bytes{sum} + s.scratch;
      if (memory.temporaries[i] > memory.temporaries[memory.fullest]) memory.fullest = i;
      ForTemporaries(s, s.instruction->outputs, [&](Bytes offset, Bytes) {
        const auto it = live.find(offset.v);
        if (it == live.end()) return;
        sum -= it->second;
        live.erase(it);
      });
      ForTemporaries(s, s.instruction->inputs, add);
    }
    return memory;
  }

  // The tensors live at `fullest`: goes forward, tracking the maker of the value at each offset; then selects those
  // that a later instruction reads before the offset is written again. Adds the instruction's scratch.
  std::vector<LiveTensor> AliveAt(size_t fullest) const {
    std::map<int64_t, LiveTensor> made;
    for (size_t i = 0; i <= fullest; ++i) {
      const Step& s = steps_[i];
      for (const int k : s.instruction->outputs) {
        const Bytes offset = s.binding->offsets[static_cast<size_t>(k)];
        if (!IsTemporary(offset)) continue;
        const TensorType& type = s.segment->operands[static_cast<size_t>(k)];
        made[offset.v] = {NameOf(s), type.ToString(), type.bytes()};
      }
    }
    std::map<int64_t, bool> needed;  // offset -> read before it is written again
    for (size_t i = fullest; i < steps_.size(); ++i) {
      const Step& s = steps_[i];
      ForTemporaries(s, s.instruction->inputs, [&](Bytes offset, Bytes) { needed.try_emplace(offset.v, true); });
      ForTemporaries(s, s.instruction->outputs,
                     [&](Bytes offset, Bytes) { needed.try_emplace(offset.v, i == fullest); });
    }
    std::vector<LiveTensor> alive;
    if (const Step& s = steps_[fullest]; s.scratch.v > 0) alive.push_back({"scratch of " + NameOf(s), "", s.scratch});
    for (const auto& [offset, tensor] : made) {
      const auto it = needed.find(offset);
      if (it != needed.end() && it->second) alive.push_back(tensor);
    }
    return alive;
  }

 private:
  static std::string NameOf(const Step& s) {
    return fmt::format("{} of {} {}", ToString(s.instruction->op), ToString(s.segment->phase),
                       NameOfBlock(s.binding->block));
  }

  template <class F>
  void ForTemporaries(const Step& s, const std::vector<int>& operands, const F& f) const {
    for (const int operand : operands) {
      const auto k = static_cast<size_t>(operand);
      const Bytes size = AlignUp(s.segment->operands[k].bytes(), kAlignment);
      if (IsTemporary(s.binding->offsets[k]) && size.v > 0) f(s.binding->offsets[k], size);
    }
  }
  bool IsTemporary(Bytes offset) const { return offset >= begin_ && TierOf(offset) == Tier::kDevice; }

  const std::vector<Step> steps_;
  Bytes begin_;
};

}  // namespace

LiveMemory FindLiveMemory(const Program& program, size_t tensors) {
  Walker walker(program);
  LiveMemory memory = walker.Run();
  if (!memory.temporaries.empty()) memory.at_fullest = walker.AliveAt(memory.fullest);
  for (const Buffer& b : program.buffers) {
    if (b.tier() == Tier::kDevice && !b.transient)
      memory.at_fullest.push_back({b.name, b.type.ToString(), b.type.bytes()});
  }
  std::stable_sort(memory.at_fullest.begin(), memory.at_fullest.end(),
                   [](const LiveTensor& a, const LiveTensor& b) { return a.bytes > b.bytes; });
  if (memory.at_fullest.size() > tensors) memory.at_fullest.resize(tensors);
  return memory;
}

}  // namespace temper

#include "compile/pipeline/calls.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace temper {
namespace {

// `slack`: number of tasks before a released slot is reused, because a transfer may still read it.
StageCalls CallsWithSlack(const PipelineSchedule& s, const SimulatedPipeline& simulated, int stage, size_t slack) {
  const auto& tasks = s.tasks[static_cast<size_t>(stage)];
  const auto find = [&](Work work, int chunk, int m) {
    const auto it = std::find(tasks.begin(), tasks.end(), PipelineTask{work, chunk, m});
    TEMPER_CHECK(it != tasks.end()) << "not this stage's";
    return static_cast<int>(it - tasks.begin());
  };
  // A receive is issued one task before its value is needed, or earlier if a later transfer is: both ends of all
  // transfers keep one order.
  struct Receive {
    PipelineCall call;
    int before;  // the task that it precedes
  };
  std::vector<Receive> receives;
  for (const PipelineTransfer& t : simulated.transfers) {
    if (s.StageOf(t.to_chunk) != stage) continue;
    const bool forward = t.to_chunk > t.from_chunk;
    const int needed = find(forward ? Work::kForward : Work::kBackward, t.to_chunk, t.micro_batch);
    receives.push_back({{forward ? PartKind::kReceiveForward : PartKind::kReceiveBackward, t.to_chunk, t.micro_batch},
                        std::max(needed - 1, 0)});
  }
  for (size_t i = receives.size(); i-- > 1;) {
    receives[i - 1].before = std::min(receives[i - 1].before, receives[i].before);
  }

  StageCalls result;
  result.slots.resize(static_cast<size_t>(s.chunks()));
  const Work last = s.forward_only ? Work::kForward : s.splits_backward ? Work::kWeights : Work::kBackward;
  std::vector<std::array<std::set<int>, kNumSlotKinds>> taken(static_cast<size_t>(s.chunks()));
  std::vector<Slots> own(static_cast<size_t>(s.chunks() * s.micro_batches));
  const auto slots_of = [&](int chunk, int m) -> Slots& {
    return own[static_cast<size_t>(chunk * s.micro_batches + m)];
  };
  const auto take = [&](int chunk, int m, SlotKind kind) {
    const auto k = static_cast<size_t>(kind);
    std::set<int>& used = taken[static_cast<size_t>(chunk)][k];
    int slot = 0;
    while (used.contains(slot)) ++slot;
    used.insert(slot);
    slots_of(chunk, m)[k] = slot;
    int& count = result.slots[static_cast<size_t>(chunk)][k];
    count = std::max(count, slot + 1);
  };
  size_t at = 0;
  const auto give_back = [&](const PipelineTask& t) {
    if (t.work != last) return;
    for (size_t k = 0; k < kNumSlotKinds; ++k) {
      taken[static_cast<size_t>(t.chunk)][k].erase(slots_of(t.chunk, t.micro_batch)[k]);
    }
  };
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i > slack) give_back(tasks[i - slack - 1]);
    for (; at < receives.size() && receives[at].before <= static_cast<int>(i); ++at) {
      PipelineCall call = receives[at].call;
      take(call.chunk, call.micro_batch,
           call.part == PartKind::kReceiveForward ? SlotKind::kReceivedForward : SlotKind::kReceivedBackward);
      call.slots = slots_of(call.chunk, call.micro_batch);
      result.calls.push_back(call);
    }
    const PipelineTask& t = tasks[i];
    if (t.work == Work::kForward) take(t.chunk, t.micro_batch, SlotKind::kKept);
    constexpr PartKind kParts[] = {PartKind::kForward, PartKind::kBackward, PartKind::kWeights};
    result.calls.push_back(
        {kParts[static_cast<size_t>(t.work)], t.chunk, t.micro_batch, slots_of(t.chunk, t.micro_batch)});
  }
  return result;
}

// Simulates the calls of all stages together, each with a thread that computes, one that sends
// and one that receives. A transfer takes place when it is next at both ends; a part waits for
// its receives; and taking a slot waits for the sends of its last owner, which may read the
// slot. No step involves a choice, so whether all stages finish does not depend on their speed.
class StagesTogether {
 public:
  StagesTogether(const PipelineSchedule& schedule, const SimulatedPipeline& simulated,
                 const std::vector<StageCalls>& calls)
      : schedule_(schedule), calls_(calls), stages_(calls.size()) {
    for (const PipelineTransfer& t : simulated.transfers) known_.insert(KeyOf(t.from_chunk, t.to_chunk, t.micro_batch));
  }

  bool ComeToTheEnd() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size(); ++stage) {
        while (Compute(stage) || Transfer(stage)) moved = true;
      }
    }
    return std::all_of(stages_.begin(), stages_.end(), [&](const Stage& stage) {
      return stage.at == calls_[static_cast<size_t>(&stage - stages_.data())].calls.size();
    });
  }

 private:
  using Key = std::array<int, 3>;  // from chunk, to chunk, micro-batch
  static Key KeyOf(int from, int to, int micro_batch) { return {from, to, micro_batch}; }
  struct Stage {
    size_t at = 0;                                 // the next call
    std::vector<Key> sends, receives;              // issued
    size_t sent = 0, received = 0;                 // of these: done
    std::map<std::array<int, 3>, int> slot_owner;  // by chunk, kind and slot: the last micro-batch that used it
  };

  bool Done(const Key& transfer) const { return !known_.contains(transfer) || done_.contains(transfer); }

  // Whether all sends of the slot's last owner have arrived; if so, gives it a new owner.
  bool TakeSlot(Stage* stage, const PipelineCall& call, SlotKind kind) {
    const auto k = static_cast<int>(kind);
    const std::array<int, 3> slot = {call.chunk, k, call.slots[static_cast<size_t>(k)]};
    const auto before = stage->slot_owner.find(slot);
    if (before != stage->slot_owner.end()) {
      for (const int to : {call.chunk - 1, call.chunk + 1}) {
        if (!Done(KeyOf(call.chunk, to, before->second))) return false;
      }
    }
    stage->slot_owner[slot] = call.micro_batch;
    return true;
  }

  // Runs the next call of the stage, if it need not wait.
  bool Compute(size_t index) {
    Stage& stage = stages_[index];
    if (stage.at == calls_[index].calls.size()) return false;
    const PipelineCall& call = calls_[index].calls[stage.at];
    const auto send = [&](int to) {
      const Key key = KeyOf(call.chunk, to, call.micro_batch);
      if (known_.contains(key)) stage.sends.push_back(key);
    };
    switch (call.part) {
      case PartKind::kReceiveForward:
        if (!TakeSlot(&stage, call, SlotKind::kReceivedForward)) return false;
        stage.receives.push_back(KeyOf(call.chunk - 1, call.chunk, call.micro_batch));
        break;
      case PartKind::kReceiveBackward:
        if (!TakeSlot(&stage, call, SlotKind::kReceivedBackward)) return false;
        stage.receives.push_back(KeyOf(call.chunk + 1, call.chunk, call.micro_batch));
        break;
      case PartKind::kForward:
        if (!Done(KeyOf(call.chunk - 1, call.chunk, call.micro_batch))) return false;
        if (!TakeSlot(&stage, call, SlotKind::kKept)) return false;
        send(call.chunk + 1);
        break;
      case PartKind::kBackward:
        if (!Done(KeyOf(call.chunk + 1, call.chunk, call.micro_batch))) return false;
        send(call.chunk - 1);
        break;
      case PartKind::kWeights:
        break;
    }
    ++stage.at;
    return true;
  }

  // Completes the stage's next send, if the other end expects it next.
  bool Transfer(size_t index) {
    Stage& from = stages_[index];
    if (from.sent == from.sends.size()) return false;
    const Key key = from.sends[from.sent];
    Stage& to = stages_[static_cast<size_t>(schedule_.StageOf(key[1]))];
    if (to.received == to.receives.size() || to.receives[to.received] != key) return false;
    ++from.sent;
    ++to.received;
    done_.insert(key);
    return true;
  }

  const PipelineSchedule& schedule_;
  const std::vector<StageCalls>& calls_;
  std::vector<Stage> stages_;
  std::set<Key> known_, done_;
};

}  // namespace

// Uses the fewest slots with which all stages finish.
StageCalls CallsOfStage(const PipelineSchedule& schedule, const SimulatedPipeline& simulated, int stage) {
  for (size_t slack = 0;; ++slack) {
    std::vector<StageCalls> all;
    for (int other = 0; other < schedule.stages; ++other) {
      all.push_back(CallsWithSlack(schedule, simulated, other, slack));
    }
    if (StagesTogether(schedule, simulated, all).ComeToTheEnd()) return std::move(all[static_cast<size_t>(stage)]);
    TEMPER_CHECK(slack <= schedule.tasks[0].size()) << "stages wait for each other though no slot is used twice";
  }
}

}  // namespace temper

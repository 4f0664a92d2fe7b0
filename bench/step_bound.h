// Lower bounds on a step's time, from the times of its instructions: a benchmark can then tell what a measured step
// loses to its order from what no order could save.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/named_ops.h"
#include "program/program.h"
#include "program/waits.h"
#include "runtime/trace.h"

namespace temper::bench {

// One execution of an instruction.
struct Executed {
  const Instruction* instruction;
  const Segment* segment;
  const Binding* binding;
  double seconds = 0;
  bool background() const { return instruction->attributes.Flag("background"); }
  size_t lane() const { return LaneOf(*instruction, *binding); }  // of one in the background
};

// In the order of the schedule. REQUIRES: `program` outlives it, and only collectives run in its background.
inline std::vector<Executed> ExecutedBy(const Program& program) {
  std::vector<Executed> all;
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    for (const Instruction& i : segment.instructions) all.push_back({&i, &segment, &binding});
  }
  return all;
}

// The shortest time of each instruction in any of the traced steps. A trace has the foreground in order, followed by
// each lane of the background in order.
inline void TakeShortest(const Trace& trace, bool first, std::vector<Executed>* all) {
  std::map<std::string_view, std::vector<const Trace::Event*>> queues;
  for (const Trace::Event& e : trace.events()) queues[e.queue].push_back(&e);
  std::map<std::string_view, size_t> next;
  for (Executed& e : *all) {
    const std::string_view queue = e.background() ? kQueueOfLane[e.lane()] : kComputeQueue;
    const Trace::Event& event = *queues[queue][next[queue]++];
    const double seconds = std::chrono::duration<double>(event.end - event.begin).count();
    e.seconds = first ? seconds : std::min(e.seconds, seconds);
  }
}

// As the executor runs it: collectives of a lane follow each other, and instructions that touch their memory wait.
inline double SecondsInOrder(const Program& program, std::span<const Executed> all) {
  const std::vector<LaneCounts> waits = FindWaits(program);
  constexpr std::array kLanes = {kCollectiveLane, kSoonLane};
  std::array<std::vector<double>, kLanes.size()> done;
  double now = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    double ready = now;
    for (const size_t lane : kLanes) {
      if (const uint32_t count = waits[i][lane]; count > 0) ready = std::max(ready, done[lane][count - 1]);
    }
    if (all[i].background()) {
      std::vector<double>& own = done[all[i].lane()];
      own.push_back(std::max(ready, own.empty() ? 0 : own.back()) + all[i].seconds);
    } else {
      now = ready + all[i].seconds;
    }
  }
  for (const std::vector<double>& lane : done) now = std::max(now, lane.empty() ? 0 : lane.back());
  return now;
}

// The least time that any order of the background collectives could take, one at a time,
// with kernels in their order. Readers of a collective's result wait for it, a gradient
// is reduced when it exists, gathers go first and may interrupt reductions, for which
// only the update waits. Collectives of activations stay in place. No memory is reused.
class LeastSeconds {
 public:
  // `any_memory`: weights may be gathered from the beginning of the step on; otherwise, as in the Program, when the
  // block before begins.
  static double Of(std::span<const Executed> all, bool any_memory) {
    LeastSeconds walk(any_memory);
    for (const Executed& e : all) walk.Run(e);
    for (size_t k = 0; k < walk.moves_.size(); ++k) walk.now_ = std::max(walk.now_, walk.EndOf(k));
    return walk.now_;
  }

 private:
  struct Span {
    double begin, end;
  };
  struct Move {
    bool gather;                    // or of activations
    double released, seconds, end;  // `end` of a reduction: once it is known
  };
  struct Written {
    Bytes begin, end;
    size_t by;  // of moves_
  };
  explicit LeastSeconds(bool any_memory) : any_memory_(any_memory) {}

  void Run(const Executed& e) {
    const auto range = [&](int operand) {
      const auto k = static_cast<size_t>(operand);
      const Bytes begin = e.binding->offsets[k];
      return std::pair(begin, begin + e.segment->operands[k].bytes());
    };
    const auto overlaps = [](const Written& w, const std::pair<Bytes, Bytes>& r) {
      return w.begin < r.second && r.first < w.end;
    };
    if (!e.background()) {
      for (const int operand : e.instruction->inputs) {
        for (const Written& w : written_) {
          if (overlaps(w, range(operand))) now_ = std::max(now_, EndOf(w.by));
        }
      }
      now_ += e.seconds;
    } else if (e.lane() == kSoonLane) {
      const double begin = std::max(now_, soon_until_);
      soon_until_ = begin + e.seconds;
      moves_.push_back({true, begin, e.seconds, soon_until_});
    } else if (e.instruction->op == Op::kAllGather) {
      const double begin = std::max(any_memory_ ? 0 : now_, gathers_.empty() ? 0 : gathers_.back().end);
      gathers_.push_back({begin, begin + e.seconds});
      moves_.push_back({true, begin, e.seconds, begin + e.seconds});
    } else {
      moves_.push_back({false, now_, e.seconds, 0});
    }
    for (const int operand : e.instruction->outputs) {
      const auto out = range(operand);
      std::erase_if(written_, [&](const Written& w) { return overlaps(w, out); });
      if (e.background()) written_.push_back({out.first, out.second, moves_.size() - 1});
    }
  }

  double EndOf(size_t move) {
    for (; !moves_[move].gather && reduced_ <= move; ++reduced_) {
      Move& m = moves_[reduced_];
      if (m.gather) continue;
      double begin = std::max(m.released, reduced_until_), left = m.seconds;
      for (const Span& gather : gathers_) {
        if (gather.end <= begin) continue;
        if (gather.begin - begin >= left) break;
        left -= std::max(0.0, gather.begin - begin);
        begin = gather.end;
      }
      m.end = reduced_until_ = begin + left;
    }
    return moves_[move].end;
  }

  const bool any_memory_;
  double now_ = 0;
  std::vector<Span> gathers_;     // ascending
  std::vector<Move> moves_;       // in the order of issue
  std::vector<Written> written_;  // by them, and not since
  size_t reduced_ = 0;            // of moves_, the ends of reductions before it are known
  double reduced_until_ = 0;
  double soon_until_ = 0;
};

}  // namespace temper::bench

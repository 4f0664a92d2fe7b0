#include "backend/gpu/emulator/simt.h"

#include <fmt/core.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <memory>
#include <vector>

#include "base/check.h"

namespace temper::simt {
namespace {

namespace context = boost::context;

constexpr int kNoThread = -1, kSeveral = -2;

}  // namespace

class SharedCells {
 public:
  SharedCells(size_t elements, size_t element_size, int declared_at)
      : line(declared_at), size(element_size), data(elements * element_size, std::byte{0xFF}), cells(elements) {}

  struct Cell {
    int writer = kNoThread, reader = kNoThread;
    int64_t written = -1, read = -1;  // in which interval between barriers, last
  };
  const int line;
  const size_t size;
  std::vector<std::byte> data;
  std::vector<Cell> cells;
};

namespace {

enum class State : unsigned char { kReady, kAtBarrier, kAtShuffle, kDone };

struct Thread {
  context::fiber fiber;
  ThreadPlace place;
  State state = State::kReady;
  int line = 0;         // where it waits
  int exchanges = 0;    // shuffles so far
  size_t declared = 0;  // shared arrays so far
};

// Values of a warp's lanes; those of the shuffle before are still read while the next one is under way.
struct Warp {
  uint64_t bits[2][64];
  WarpWords words[2][64];
};

// Stacks are kept from launch to launch: a kernel of ours needs little, libm's slow paths some kilobytes.
constexpr size_t kStackBytes = 64 << 10;

struct StackPool {
  std::vector<std::unique_ptr<std::byte[]>> stacks;
  std::byte* At(size_t i) {
    while (stacks.size() <= i) stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(kStackBytes));
    // A fiber that failed has left frames behind, which AddressSanitizer still guards.
    ASAN_UNPOISON_MEMORY_REGION(stacks[i].get(), kStackBytes);
    return stacks[i].get();
  }
};

struct KeepsStack {
  void deallocate(context::stack_context&) {}
};

class Block {
 public:
  Block(const Machine& machine, Dim3 grid, Dim3 dim, Dim3 index, uint64_t seed, StackPool* stacks)
      : machine_(machine), seed_(seed), threads_(static_cast<size_t>(dim.x) * dim.y * dim.z) {
    warps_.resize((threads_.size() + static_cast<size_t>(machine.warp_size) - 1) /
                  static_cast<size_t>(machine.warp_size));
    for (size_t i = 0; i < threads_.size(); ++i) {
      const auto n = static_cast<unsigned>(i);
      threads_[i].place = {.thread = {n % dim.x, n / dim.x % dim.y, n / dim.x / dim.y},
                           .block = index,
                           .block_dim = dim,
                           .grid_dim = grid,
                           .index = static_cast<int>(i)};
      order_.push_back(i);
      stacks_.push_back(stacks->At(i));
    }
  }

  std::string Run(const std::function<void()>& body) {
    for (size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[i];
      const context::preallocated stack(stacks_[i] + kStackBytes, kStackBytes, {});
      thread.fiber =
          context::fiber(std::allocator_arg, stack, KeepsStack(), [this, &thread, &body](context::fiber&& host) {
            host_ = std::move(host);
            body();
            thread.state = State::kDone;
            return std::move(host_);
          });
    }
    while (true) {
      Shuffle();
      for (const size_t i : order_) {
        Thread& thread = threads_[i];
        if (thread.state != State::kReady) continue;
        running_ = &thread;
        thread.fiber = std::move(thread.fiber).resume();
        if (!fault_.empty()) return fault_;
      }
      if (std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state == State::kDone; })) {
        return "";
      }
      if (!ReleaseWarps() && !ReleaseBarrier()) return Deadlock();
    }
  }

  Thread& running() { return *running_; }
  const Machine& machine() const { return machine_; }

  void Wait(State state, int line) {
    Thread& thread = *running_;
    thread.state = state;
    thread.line = line;
    host_ = std::move(host_).resume();
  }
  [[noreturn]] void Fail(const std::string& what) {
    fault_ = fmt::format("thread {}: {}", running_->place.index, what);
    host_ = std::move(host_).resume();
    TEMPER_CHECK(false) << "a fiber that failed was resumed";
    __builtin_unreachable();
  }

  uint64_t Exchange(uint64_t bits, int mask, int line) {
    Thread& thread = *running_;
    const int lane = thread.place.index % machine_.warp_size;
    Warp& warp = warps_[static_cast<size_t>(thread.place.index / machine_.warp_size)];
    uint64_t* const values = warp.bits[thread.exchanges++ % 2];
    values[lane] = bits;
    if ((lane ^ mask) >= machine_.warp_size) Fail(fmt::format("shuffle over {} lanes in line {}", mask, line));
    Wait(State::kAtShuffle, line * 64 + mask);
    return values[lane ^ mask];
  }

  const WarpWords* ExchangeWords(const WarpWords& mine, int line) {
    Thread& thread = *running_;
    Warp& warp = warps_[static_cast<size_t>(thread.place.index / machine_.warp_size)];
    WarpWords* const words = warp.words[thread.exchanges++ % 2];
    words[thread.place.index % machine_.warp_size] = mine;
    Wait(State::kAtShuffle, line * 64);
    return words;
  }

  SharedSpan Declare(size_t elements, size_t element_size, int line) {
    Thread& thread = *running_;
    if (thread.declared == shared_.size()) {
      shared_.push_back(std::make_unique<SharedCells>(elements, element_size, line));
    }
    SharedCells& cells = *shared_[thread.declared++];
    if (cells.cells.size() != elements || cells.line != line) {
      Fail(fmt::format("shared memory of line {} where others have that of line {}", line, cells.line));
    }
    return {cells.data.data(), &cells};
  }

  void Read(SharedCells* s, size_t i) {
    CheckBounds(*s, i);
    SharedCells::Cell& cell = s->cells[i];
    const int self = running_->place.index;
    if (cell.written < 0) Fail(fmt::format("reads {}, which was never written", NameOf(*s, i)));
    if (cell.written == interval_ && cell.writer != self) {
      Fail(fmt::format("reads {}, which thread {} wrote since the last __syncthreads", NameOf(*s, i), cell.writer));
    }
    cell.reader = cell.read == interval_ && cell.reader != self ? kSeveral : self;
    cell.read = interval_;
  }
  void Write(SharedCells* s, size_t i) {
    CheckBounds(*s, i);
    SharedCells::Cell& cell = s->cells[i];
    const int self = running_->place.index;
    if (cell.written == interval_ && cell.writer != self) {
      Fail(fmt::format("writes {}, as thread {} did since the last __syncthreads", NameOf(*s, i), cell.writer));
    }
    if (cell.read == interval_ && cell.reader != self) {
      Fail(fmt::format("writes {}, which another thread read since the last __syncthreads", NameOf(*s, i)));
    }
    cell.writer = self;
    cell.written = interval_;
  }

 private:
  static std::string NameOf(const SharedCells& s, size_t i) {
    return fmt::format("element {} of the shared memory of line {}", i, s.line);
  }
  void CheckBounds(const SharedCells& s, size_t i) {
    if (i >= s.cells.size()) Fail(fmt::format("touches {}, which has {}", NameOf(s, i), s.cells.size()));
  }

  // A linear congruential generator (Knuth, MMIX): any order will do, the same for the same seed.
  void Shuffle() {
    if (machine_.order == 0) return;
    for (size_t i = order_.size(); i > 1; --i) {
      seed_ = seed_ * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(order_[i - 1], order_[(seed_ >> 33) % i]);
    }
  }

  // Warps whose lanes all wait in the same place go on; true where one does.
  bool ReleaseWarps() {
    bool any = false;
    const auto width = static_cast<size_t>(machine_.warp_size);
    for (size_t begin = 0; begin < threads_.size(); begin += width) {
      const auto first = threads_.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto end = threads_.begin() + static_cast<std::ptrdiff_t>(std::min(begin + width, threads_.size()));
      const bool together = std::all_of(
          first, end, [&](const Thread& t) { return t.state == State::kAtShuffle && t.line == first->line; });
      if (!together || static_cast<size_t>(end - first) != width) continue;
      std::for_each(first, end, [](Thread& t) { t.state = State::kReady; });
      any = true;
    }
    return any;
  }

  bool ReleaseBarrier() {
    const bool together = std::all_of(threads_.begin(), threads_.end(), [&](const Thread& t) {
      return t.state == State::kAtBarrier && t.line == threads_[0].line;
    });
    if (!together) return false;
    ++interval_;
    for (Thread& t : threads_) t.state = State::kReady;
    return true;
  }

  // No thread can go on: where two of them are that should be in one place.
  std::string Deadlock() const {
    const auto place = [](const Thread& t) {
      switch (t.state) {
        case State::kAtBarrier:
          return fmt::format("waits at the __syncthreads of line {}", t.line);
        case State::kAtShuffle:
          return fmt::format("waits in the shuffle of line {}", t.line / 64);
        default:
          return std::string("has ended");
      }
    };
    const auto waits = std::find_if(threads_.begin(), threads_.end(), [](const Thread& t) {
      return t.state != State::kReady && t.state != State::kDone;
    });
    const auto other = std::find_if(threads_.begin(), threads_.end(),
                                    [&](const Thread& t) { return t.state != waits->state || t.line != waits->line; });
    return fmt::format("thread {} {}, thread {} {}", waits->place.index, place(*waits),
                       other == threads_.end() ? -1 : other->place.index,
                       other == threads_.end() ? "is missing: the warp is not full" : place(*other));
  }

  const Machine machine_;
  uint64_t seed_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<size_t> order_;
  std::vector<std::byte*> stacks_;
  std::vector<std::unique_ptr<SharedCells>> shared_;
  context::fiber host_;
  Thread* running_ = nullptr;
  int64_t interval_ = 0;  // between barriers
  std::string fault_;
};

Block* g_block = nullptr;  // that is running

Block& Current() {
  TEMPER_CHECK(g_block != nullptr) << "a kernel's function outside of a launch";
  return *g_block;
}

}  // namespace

std::string Launch(const Machine& machine, Dim3 grid, Dim3 block, const std::function<void()>& body) {
  TEMPER_CHECK(machine.warp_size == 32 || machine.warp_size == 64) << machine.warp_size;
  TEMPER_CHECK(g_block == nullptr) << "a launch within a launch";
  const size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024) return fmt::format("a block of {} threads", threads);
  if (grid.y > 65535 || grid.z > 65535) return fmt::format("a grid of {} x {} x {} blocks", grid.x, grid.y, grid.z);
  static StackPool stacks;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (blocks == 0) return "a grid of no blocks";
  for (uint64_t n = 0; n < blocks; ++n) {
    const uint64_t i = machine.order == 0 ? n : blocks - 1 - n;
    const Dim3 index = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                        static_cast<unsigned>(i / grid.x / grid.y)};
    Block running(machine, grid, block, index, machine.order + i, &stacks);
    g_block = &running;
    const std::string fault = running.Run(body);
    g_block = nullptr;
    if (!fault.empty()) return fmt::format("block {}: {}", i, fault);
  }
  return "";
}

const ThreadPlace& Here() {
  return Current().running().place;
}
int WarpSize() {
  return Current().machine().warp_size;
}
void Barrier(int line) {
  Current().Wait(State::kAtBarrier, line);
}
uint64_t ExchangeBits(uint64_t bits, int mask, int line) {
  return Current().Exchange(bits, mask, line);
}
const WarpWords* ExchangeWords(const WarpWords& mine, int line) {
  return Current().ExchangeWords(mine, line);
}
void Fail(const std::string& what) {
  Current().Fail(what);
}
SharedSpan AllocateShared(size_t elements, size_t element_size, int line) {
  return Current().Declare(elements, element_size, line);
}
void CheckRead(SharedCells* cells, size_t index) {
  Current().Read(cells, index);
}
void CheckWrite(SharedCells* cells, size_t index) {
  Current().Write(cells, index);
}

}  // namespace temper::simt

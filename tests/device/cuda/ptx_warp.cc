#include "ptx_warp.h"

#include <algorithm>
#include <cstring>

#include "ptx_block.h"

namespace temper::ptx {
namespace {

constexpr int kRegisterAlignment = 64;
constexpr int kBlockRegister = 6;  // the first of three special registers that have the block's place

}  // namespace

Warp::Warp(Block& block, int index, size_t register_bytes, size_t local_bytes)
    : block_(block),
      index_(index),
      storage_(std::make_unique<std::byte[]>(register_bytes + kRegisterAlignment)),
      local_bytes_((local_bytes + 15) / 16 * 16),
      local_(local_bytes_ * kLanes) {
  const auto begin = reinterpret_cast<uintptr_t>(storage_.get());
  registers_ = storage_.get() + (kRegisterAlignment - begin % kRegisterAlignment) % kRegisterAlignment;
  // NaNs: unwritten registers are not 0 by chance.
  std::memset(registers_, 0xFF, register_bytes);
  // Registers of the launch and of the thread, which no instruction writes.
  const std::array<int, 3> dimensions = block_.dimensions(), grid = block_.grid();
  auto* special = reinterpret_cast<uint32_t*>(registers_);
  for (int lane = 0; lane < kLanes; ++lane, ++special) {
    const std::array<int, 3> thread = block_.Thread(this->thread(lane));
    const int values[] = {thread[0],
                          thread[1],
                          thread[2],
                          dimensions[0],
                          dimensions[1],
                          dimensions[2],
                          0,
                          0,
                          0,
                          grid[0],
                          grid[1],
                          grid[2],
                          lane,
                          index_,
                          (block_.threads() + 31) / 32};
    int i = 0;
    for (const int value : values) special[kLanes * i++] = static_cast<uint32_t>(value);
    special[kLanes * i++] = Mask{1} << lane;
    special[kLanes * i++] = (Mask{1} << lane) - 1;
    special[kLanes * i++] = (Mask{2} << lane) - 1;
  }
  if (block.kernel().has_products) {
    written_at.resize(register_bytes / 64 + 1);
    summing.resize(register_bytes / 64 + 1);
    reading.resize(register_bytes / 64 + 1);
  }
}

void Warp::Begin(int32_t begin, int x, int y, int z) {
  const int left = block_.threads() - index_ * kLanes;
  threads_ = left >= kLanes ? kAllLanes : (Mask{1} << left) - 1;
  groups_.clear();
  groups_.push_back({begin, threads_, false, {}});
  state_ = State::kReady;
  copies.clear();
  std::fill(std::begin(copy_groups), std::end(copy_groups), 0);
  products.clear();
  product_groups = 0;
  products_begun = 0;
  fenced_at = time = 0;
  std::fill(written_at.begin(), written_at.end(), 0);
  std::fill(summing.begin(), summing.end(), 0);
  std::fill(reading.begin(), reading.end(), 0);
  std::fill(local_.begin(), local_.end(), std::byte{0xFF});
  auto* const of_block = reinterpret_cast<uint32_t*>(registers_) + kBlockRegister * kLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    of_block[lane] = static_cast<uint32_t>(x);
    of_block[kLanes + lane] = static_cast<uint32_t>(y);
    of_block[2 * kLanes + lane] = static_cast<uint32_t>(z);
  }
}

void Warp::Fail(int lane, const std::string& what) {
  block_.Fail(thread(lane), *instruction_, what);
}

// Groups that have reached the same place become one again.
void Warp::Meet() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t j = groups_.size(); j-- > i + 1;) {
      if (groups_[i].pc != groups_[j].pc || groups_[i].returns != groups_[j].returns) continue;
      groups_[i].mask |= groups_[j].mask;
      groups_[i].waits = false;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

void Warp::PassBy(size_t g, Mask mask) {
  if (mask == 0) return;
  groups_[g].mask &= ~mask;
  groups_.push_back({groups_[g].pc + 1, mask, false, groups_[g].returns});
}

void Warp::Run() {
  const std::vector<Instruction>& code = block_.program().code;
  while (!block_.failed()) {
    if (groups_.size() > 1) Meet();
    if (groups_.empty()) {
      state_ = State::kDone;
      return;
    }
    // Calls deeper first, then the group that is behind.
    size_t g = groups_.size();
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].waits) continue;
      if (g == groups_.size() || groups_[i].returns.size() > groups_[g].returns.size() ||
          (groups_[i].returns.size() == groups_[g].returns.size() && groups_[i].pc < groups_[g].pc)) {
        g = i;
      }
    }
    if (g == groups_.size()) {
      const Group& first = groups_.front();
      instruction_ = &code[static_cast<size_t>(first.pc)];
      Fail(__builtin_ctz(first.mask), "waits for threads of its warp that do not come");
      return;
    }
    int32_t end = INT32_MAX;  // the position of another group
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].pc > groups_[g].pc) end = std::min(end, groups_[i].pc);
    }
    if (block_.kernel().has_products) {
      Straight<true>(groups_[g], end);
    } else {
      Straight<false>(groups_[g], end);
    }
    if (block_.failed()) return;
    if (groups_[g].pc == end) continue;
    // At an instruction that decides where lanes go.
    Group& group = groups_[g];
    const Instruction& i = code[static_cast<size_t>(group.pc)];
    instruction_ = &i;
    Mask mask = group.mask;
    if (i.guard >= 0) {
      const Mask guard = reinterpret_cast<const Mask&>(registers_[i.guard]);
      mask &= i.guard_negated ? ~guard : guard;
    }
    switch (i.flow) {
      case Flow::kBranch:
        if (mask == group.mask) {
          group.pc = i.target;
        } else if (mask == 0) {
          ++group.pc;
        } else {
          PassBy(g, group.mask & ~mask);
          groups_[g].pc = i.target;
        }
        break;
      case Flow::kCall:
        PassBy(g, group.mask & ~mask);
        if (mask == 0) {
          groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
          break;
        }
        i.run(*this, i, mask);
        groups_[g].returns.push_back(groups_[g].pc);
        groups_[g].pc = i.target;
        break;
      case Flow::kReturn:
      case Flow::kExit: {
        PassBy(g, group.mask & ~mask);
        Group& left = groups_[g];
        if (mask == 0 || left.returns.empty() || i.flow == Flow::kExit) {
          groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
          break;
        }
        const int32_t from = left.returns.back();
        left.returns.pop_back();
        const Instruction& call = code[static_cast<size_t>(from)];
        TakeResults(call, mask);
        left.pc = from + 1;
        break;
      }
      case Flow::kTogether: {
        PassBy(g, group.mask & ~mask);
        if (mask == 0) {
          groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
          break;
        }
        Mask members = kAllLanes;
        if (i.members.exists()) {
          members = In<uint32_t>(i.members)[__builtin_ctz(mask)];
          Mask rest = mask;
          for (; rest != 0; rest &= rest - 1) {
            const int lane = __builtin_ctz(rest);
            if (In<uint32_t>(i.members)[lane] != members) {
              Fail(lane, "names other threads of its warp than another that is here");
              return;
            }
          }
          if ((mask & ~members) != 0) {
            Fail(__builtin_ctz(mask & ~members), "is not among the threads that it names");
            return;
          }
        }
        if ((members & ~mask) != 0) {
          groups_[g].waits = true;
          break;
        }
        if (i.run != nullptr) {
          if (block_.kernel().has_products && !Watch(i)) return;
          i.run(*this, i, mask);
          if (block_.kernel().has_products) NoteWrites(i);
        }
        ++groups_[g].pc;
        break;
      }
      case Flow::kBarrier:
      case Flow::kArrive: {
        if (i.guard >= 0 && mask != group.mask && mask != 0) {
          Fail(__builtin_ctz(group.mask & ~mask), "passes by a barrier that others of its warp come to");
          return;
        }
        if (mask == 0) {
          ++group.pc;
          break;
        }
        if (mask != threads_) {
          group.waits = true;
          break;
        }
        ++group.pc;
        const int id = i.a.exists() ? static_cast<int>(In<uint32_t>(i.a)[0]) : 0;
        const int threads = i.b.exists() ? static_cast<int>(In<uint32_t>(i.b)[0]) : (block_.threads() + 31) / 32 * 32;
        const bool waits = i.flow == Flow::kBarrier;
        if (waits) state_ = State::kWaits;
        block_.Arrive(*this, i, id, threads);
        if (waits) return;
        break;
      }
      case Flow::kNext:
        break;
    }
  }
}

template <bool kWatched>
void Warp::Straight(Group& group, int32_t end) {
  const Instruction* const code = block_.program().code.data();
  const Mask all = group.mask;
  int32_t pc = group.pc;
  for (; pc != end; ++pc) {
    const Instruction& i = code[pc];
    if (i.flow != Flow::kNext) {
      if (i.flow != Flow::kBranch || groups_.size() > 1) break;
      // One group: usually all lanes take a branch, or none.
      Mask mask = all;
      if (i.guard >= 0) {
        const Mask guard = reinterpret_cast<const Mask&>(registers_[i.guard]);
        mask &= i.guard_negated ? ~guard : guard;
      }
      if (mask != all && mask != 0) break;
      if (mask == all) pc = i.target - 1;
      continue;
    }
    Mask mask = all;
    if (i.guard >= 0) {
      const Mask guard = reinterpret_cast<const Mask&>(registers_[i.guard]);
      mask &= i.guard_negated ? ~guard : guard;
      if (mask == 0) continue;
    }
    instruction_ = &i;
    if (kWatched && !Watch(i)) break;
    i.run(*this, i, mask);
    if (kWatched) NoteWrites(i);
    if (block_.failed()) break;
  }
  group.pc = pc;
}

// Whether `i` leaves alone the registers that unfinished products sum up or read.
bool Warp::Watch(const Instruction& i) {
  ++time;
  if (products.empty() || i.asynchronous) return true;
  const auto check = [&](const Operand& o, bool written) {
    if (o.at < 0) return true;
    const auto slot = static_cast<size_t>(o.at / 64);
    if (summing[slot] > 0) {
      Fail(0, "touches a sum of a product that has not been waited for");
      return false;
    }
    if (written && reading[slot] > 0) {
      Fail(0, "writes a left operand of a product that has not been waited for");
      return false;
    }
    return true;
  };
  for (const Operand* o : {&i.a, &i.b, &i.c, &i.members, &i.predicate}) {
    if (!check(*o, false)) return false;
  }
  if (!check(i.d, true) || !check(i.d2, true)) return false;
  for (size_t k = 0; k < i.many.size(); ++k) {
    if (!check(i.many[k], static_cast<int32_t>(k) < i.written)) return false;
  }
  return true;
}

void Warp::NoteWrites(const Instruction& i) {
  if (i.asynchronous) return;
  if (i.d.at >= 0) written_at[static_cast<size_t>(i.d.at / 64)] = time;
  if (i.d2.at >= 0) written_at[static_cast<size_t>(i.d2.at / 64)] = time;
  for (int32_t k = 0; k < i.written; ++k) {
    if (const int32_t at = i.many[static_cast<size_t>(k)].at; at >= 0) written_at[static_cast<size_t>(at / 64)] = time;
  }
}

// A function's results become the caller's, lane by lane.
void Warp::TakeResults(const Instruction& call, Mask mask) {
  ForLanes(mask, [&](int lane) {
    for (size_t i = 0; i < call.results.size(); ++i) {
      std::memcpy(Local(lane) + call.results[i].at, Local(lane) + call.callee->results[i].at,
                  static_cast<size_t>(call.results[i].bytes));
    }
  });
}

}  // namespace temper::ptx

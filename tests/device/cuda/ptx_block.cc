#include "ptx_block.h"

#include <algorithm>

namespace temper::ptx {

Block::Block(const Program& program, const Kernel& kernel, const Module::Launch& launch,
             std::span<const std::byte> parameters, std::span<std::byte> globals, AddressSpace& memory)
    : program_(program),
      kernel_(kernel),
      launch_(launch),
      parameters_(parameters),
      globals_(globals),
      memory_(memory),
      threads_(launch.block[0] * launch.block[1] * launch.block[2]),
      products_(static_cast<size_t>(threads_ / 128 + 1)) {
  shared_.Resize(kSharedBegin, program.DynamicShared(*kernel.text) - kSharedBegin + launch.dynamic_shared_bytes,
                 threads_, kernel.shared_granule, !kernel.has_named_barriers);
  for (int i = 0; i < (threads_ + kLanes - 1) / kLanes; ++i) {
    warps_.push_back(std::make_unique<Warp>(*this, i, static_cast<size_t>(kernel.text->register_bytes),
                                            static_cast<size_t>(kernel.text->local_bytes)));
  }
}

std::array<int, 3> Block::Thread(int index) const {
  const auto [x, y, z] = launch_.block;
  return {index % x, index / x % y, index / x / y};
}

std::byte* Block::Global(uint64_t address, int64_t bytes) {
  if ((address & kWindow) == kModuleWindow) {
    const uint64_t at = address - kModuleWindow;
    if (at + static_cast<uint64_t>(bytes) > globals_.size()) return nullptr;
    return globals_.data() + at;
  }
  return memory_.Find(address, bytes);
}

void Block::Fail(int thread, const Instruction& instruction, const std::string& what) {
  if (failed()) return;
  const auto [x, y, z] = Thread(thread);
  const std::string_view source = program_.text->source;
  size_t begin = 0;
  for (int line = 1; line < instruction.line && begin < source.size(); ++line) begin = source.find('\n', begin) + 1;
  std::string_view text = source.substr(begin, source.find('\n', begin) - begin);
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const auto triple = [](int a, int b, int c) {
    return "(" + std::to_string(a) + ", " + std::to_string(b) + ", " + std::to_string(c) + ")";
  };
  fault_ = kernel_.text->name + ": thread " + triple(x, y, z) + " of block " + triple(at_[0], at_[1], at_[2]) + " " +
           what + "; PTX line " + std::to_string(instruction.line) + ": " + std::string(text.substr(0, 200));
}

Status Block::Error() const {
  return InvalidArgument(fault_);
}

void Block::Arrive(Warp& warp, const Instruction& instruction, int id, int threads) {
  if (id < 0 || id >= static_cast<int>(barriers_.size()) || threads <= 0 || threads % kLanes != 0) {
    return Fail(warp.thread(0), instruction, "comes to a barrier that there cannot be");
  }
  Barrier& barrier = barriers_[static_cast<size_t>(id)];
  if (barrier.arrived > 0 && barrier.threads != threads) {
    return Fail(warp.thread(0), instruction, "comes to a barrier that another warp takes to be for other threads");
  }
  barrier.threads = threads;
  barrier.arrived += kLanes;
  if (warp.state() == Warp::State::kWaits) barrier.waiting.push_back(&warp);
  if (barrier.arrived < threads) return;
  for (Warp* waiting : barrier.waiting) waiting->Release();
  const bool is_whole = barrier.waiting.size() == warps_.size();
  barrier = {};
  if (is_whole) shared_.PassBarrier();
}

Status Block::Run(int x, int y, int z) {
  at_ = {x, y, z};
  shared_.BeginBlock();
  for (auto& products : products_) products.clear();
  barriers_ = {};
  for (auto& warp : warps_) warp->Begin(kernel_.begin, x, y, z);
  // Forwards and backwards in turn: no kernel may rely on the order of warps.
  for (bool forwards = true;; forwards = !forwards) {
    bool ran = false;
    for (size_t i = 0; i < warps_.size() && !failed(); ++i) {
      Warp& warp = *warps_[forwards ? i : warps_.size() - 1 - i];
      if (warp.state() != Warp::State::kReady) continue;
      ran = true;
      warp.Run();
    }
    if (failed()) return Error();
    if (!ran) break;
  }
  for (const auto& warp : warps_) {
    if (warp->state() == Warp::State::kWaits) {
      Fail(warp->thread(0), warp->instruction(), "waits at a barrier that not all threads come to");
      return Error();
    }
  }
  for (size_t group = 0; group < products_.size(); ++group) {
    for (size_t i = 4 * group; i < std::min(warps_.size(), 4 * group + 4); ++i) {
      Warp& warp = *warps_[i];
      if (warp.products_begun != static_cast<int>(products_[group].size())) {
        Fail(warp.thread(0), warp.instruction(), "has ended without a product that other warps of its group have");
        return Error();
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::ptx

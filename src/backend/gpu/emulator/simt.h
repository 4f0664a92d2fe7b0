// A GPU in miniature, for tests: runs kernels of this folder, the very source that nvcc and hipcc compile, on the host.
// Its matrix units are AMD's: NVIDIA's GPUs are simulated from PTX (tests/device/cuda).
// Every thread of a block is a fiber; a fiber runs until it waits (__syncthreads, a shuffle) or ends. Blocks run one
// after the other. What a GPU would do silently wrong is a fault here, and ends the launch:
//   - __syncthreads that some threads of a block reach elsewhere or not at all; shuffles that lanes of a warp miss
//   - shared memory beyond its end, read before it is written, or touched by two threads without a barrier in between
// Threads and blocks run in an order that `Machine::order` shuffles: a kernel whose result depends on it is wrong.
// Global memory is the host's; tests put guards around it.
//
// Thread rule: one thread at a time in the whole process.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace temper::simt {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Machine {
  int warp_size = 64;  // with matrix units (mfma.h); or 32, without
  uint64_t order = 0;  // 0: ascending; any other: shuffled by it, anew for every block and barrier
};

// The coordinates of the running thread.
struct ThreadPlace {
  Dim3 thread, block, block_dim, grid_dim;
  int index = 0;  // within the block
};

// Runs `body` as every thread of every block. Empty, or the first fault: "block 3: thread 7 ...".
std::string Launch(const Machine& machine, Dim3 grid, Dim3 block, const std::function<void()>& body);

// Kernels call the rest while they run.
const ThreadPlace& Here();
int WarpSize();
void Barrier(int line);
// The bits that lane `self ^ mask` gave at the same call.
uint64_t ExchangeBits(uint64_t bits, int mask, int line);
// The 16 bytes that each lane of the running thread's warp gave at the same call, by lane; valid until the next.
using WarpWords = std::array<uint32_t, 4>;
const WarpWords* ExchangeWords(const WarpWords& mine, int line);
// Ends the launch. Does not return to the kernel.
[[noreturn]] void Fail(const std::string& what);

// Which threads touched which bytes of a block's shared memory since the last barrier.
class SharedCells;
struct SharedSpan {
  std::byte* data;
  SharedCells* cells;
};
SharedSpan AllocateShared(size_t elements, size_t element_size, int line);
void CheckRead(SharedCells* cells, size_t index);
void CheckWrite(SharedCells* cells, size_t index);

// The emulator's `__shared__ T name[n]`.
template <class T>
class SharedArray {
 public:
  SharedArray(size_t n, int line) : span_(AllocateShared(n, sizeof(T), line)) {}

  class Element {
   public:
    Element(SharedSpan span, size_t i) : span_(span), i_(i) {}
    operator T() const {  // NOLINT(google-explicit-constructor)
      CheckRead(span_.cells, i_);
      T x;
      std::memcpy(&x, span_.data + i_ * sizeof(T), sizeof(T));
      return x;
    }
    T operator=(T x) const {  // NOLINT(misc-unconventional-assign-operator)
      CheckWrite(span_.cells, i_);
      std::memcpy(span_.data + i_ * sizeof(T), &x, sizeof(T));
      return x;
    }
    T operator=(const Element& other) const { return *this = static_cast<T>(other); }
    T operator+=(T x) const { return *this = static_cast<T>(*this) + x; }

   private:
    const SharedSpan span_;
    const size_t i_;
  };
  template <class I>
  Element operator[](I i) const {
    return {span_, static_cast<size_t>(i)};
  }

 private:
  const SharedSpan span_;
};

template <class T>
T ShuffleXor(T x, int mask, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(ExchangeBits(std::bit_cast<Bits>(x), mask, line)));
}

}  // namespace temper::simt

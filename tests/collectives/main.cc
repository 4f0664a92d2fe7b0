// The test program, which is also the program of its ranks: Launch starts copies of its caller.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "rank_program.h"

namespace {
std::atomic<int64_t> allocations{0};
}

#ifndef TEMPER_SANITIZED  // sanitizers define these operators themselves
void* operator new(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<size_t>(alignment);
  if (void* const p = std::aligned_alloc(a, (n + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(n);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  operator delete(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
#endif

int64_t temper::collectives::Allocations() {
  return allocations.load();
}

int main(int argc, char** argv) {
  using namespace temper;
  if (const auto launched = RankFromEnvironment()) {
    TEMPER_CHECK(argc == 4) << "usage: PROGRAM CASE CULPRIT OUT";
    const collectives::Join join = [&]() -> Result<std::unique_ptr<Communicator>> {
      TEMPER_ASSIGN_OR_RETURN(auto communicator, JoinLaunched(*launched));
      return std::unique_ptr<Communicator>(std::move(communicator));
    };
    return collectives::RunRank(join, argv[1], std::atoi(argv[2]), argv[3]);
  }
  if (argc == 6 && std::string_view(argv[1]) == "--mpi") {  // RANKS_PER_HOST CASE CULPRIT OUT
    const collectives::Join join = [&] { return JoinMpi({.ranks_per_host = std::atoi(argv[2])}); };
    return collectives::RunRank(join, argv[3], std::atoi(argv[4]), argv[5], std::atoi(argv[2]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

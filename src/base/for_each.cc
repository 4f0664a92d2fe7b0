#include "base/for_each.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace temper {

void ForEach(int64_t n, int threads, FunctionRef<void(int64_t)> each) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) each(i);
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(std::max<int64_t>(std::min<int64_t>(threads, n) - 1, 0)));
  try {
    while (others.size() < others.capacity()) others.push_back(StartThread([&] { work(); }));
  } catch (const std::system_error&) {
    // No more threads: those that are there do it.
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace temper

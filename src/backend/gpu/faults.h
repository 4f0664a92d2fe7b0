// How a kernel on a GPU says that the data it was given is wrong (a token outside of the table): it cannot return a
// Status, so it writes what it found into a word of its own and goes on without touching what is not its own. The
// stream reads the words when it is synchronized.
//
// Thread rule: the thread that makes kernels and synchronizes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace temper::gpu {

inline constexpr int kMaxFaults = 256;  // kernels that may report; a Program has a handful

class Faults {
 public:
  // `words`: kMaxFaults zeroed words that kernels can write; whoever reserved them keeps them.
  explicit Faults(int64_t* words) : words_(words) {}

  // A word for one kernel, and how what it writes there reads: describe(word). Kernels write 1 + the place of what is
  // wrong; any of several.
  int64_t* Register(std::function<std::string(int64_t word)> describe) {
    TEMPER_CHECK(descriptions_.size() < static_cast<size_t>(kMaxFaults)) << "kernels that report faults";
    descriptions_.push_back(std::move(describe));
    return words_ + descriptions_.size() - 1;
  }
  const int64_t* words() const { return words_; }

  // The first fault among `words`, a copy in the host's memory.
  Status Check(std::span<const int64_t> words) const {
    for (size_t i = 0; i < descriptions_.size(); ++i) {
      if (words[i] != 0) return InvalidArgument(descriptions_[i](words[i]));
    }
    return OkStatus();
  }

 private:
  int64_t* const words_;
  std::vector<std::function<std::string(int64_t word)>> descriptions_;
};

}  // namespace temper::gpu

// How a kernel on a GPU reports wrong data (a token outside the table): it cannot return a Status, so it writes the
// fault into a word of its own and continues without touching memory that is not its own. The stream reads the words
// when it is synchronized.
//
// Thread rule: the thread that makes kernels and synchronizes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace temper::gpu {

inline constexpr int kMaxFaults = 256;  // kernels that may report, at a time; a Program has a handful

class Faults {
 public:
  // `words`: kMaxFaults zeroed words that kernels can write; their owner keeps them.
  explicit Faults(int64_t* words) : words_(words) {}
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // The word of one kernel, which keeps it until it is destroyed; then another kernel gets it. Faults outlives it.
  struct GiveBack {
    Faults* faults = nullptr;
    void operator()(int64_t* word) const { faults->free_.push_back(static_cast<size_t>(word - faults->words_)); }
  };
  using Word = std::unique_ptr<int64_t, GiveBack>;

  // Describes what the kernel writes there: describe(word). Kernels write 1 + the place of the wrong value; any of
  // several.
  Word Register(std::function<std::string(int64_t word)> describe) {
    size_t i = descriptions_.size();
    if (free_.empty()) {
      TEMPER_CHECK(i < static_cast<size_t>(kMaxFaults)) << "kernels that report faults";
      descriptions_.push_back(std::move(describe));
    } else {
      i = free_.back();
      free_.pop_back();
      descriptions_[i] = std::move(describe);
    }
    return Word(words_ + i, GiveBack{this});
  }

  // The first fault among `words`, a copy in the host's memory. A fault sticks, as all errors of a stream do: so a word
  // that is released is zero, or is not read any more.
  Status Check(std::span<const int64_t> words) const {
    for (size_t i = 0; i < descriptions_.size(); ++i) {
      if (words[i] != 0) return InvalidArgument(descriptions_[i](words[i]));
    }
    return OkStatus();
  }

 private:
  int64_t* const words_;
  std::vector<std::function<std::string(int64_t word)>> descriptions_;
  std::vector<size_t> free_;
};

}  // namespace temper::gpu

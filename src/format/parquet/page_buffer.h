// PageBuffer: memory for a page's bytes. PageBudget: what all pages of a file may take together, so that a file that
// unpacks to far more than itself is refused in time. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

namespace temper {

class PageBudget {
 public:
  // Text packs to a tenth and tables of equal numbers to less, but pages of 1 MiB, as they are written, never need
  // this.
  static constexpr int64_t kLeast = 64 << 20;
  static constexpr int64_t kMostTimesFile = 64;

  explicit PageBudget(int64_t file_size) : left_(std::max(kLeast, file_size * kMostTimesFile)) {}
  bool Take(size_t size) {
    if (static_cast<int64_t>(size) > left_) return false;
    left_ -= static_cast<int64_t>(size);
    return true;
  }
  void Give(size_t size) { left_ += static_cast<int64_t>(size); }

 private:
  int64_t left_;
};

// Some bytes of a budget, given back with it.
class PageShare {
 public:
  // `budget` must outlive it.
  explicit PageShare(PageBudget& budget) : budget_(budget) {}
  ~PageShare() { budget_.Give(size_); }
  PageShare(const PageShare&) = delete;
  PageShare& operator=(const PageShare&) = delete;

  // False: the budget does not hold it, and this is empty.
  bool Resize(size_t size) {
    budget_.Give(size_);
    size_ = budget_.Take(size) ? size : 0;
    return size_ == size;
  }
  size_t size() const { return size_; }

 private:
  PageBudget& budget_;
  size_t size_ = 0;
};

class PageBuffer {
 public:
  explicit PageBuffer(PageBudget& budget) : share_(budget) {}

  // Memory of `size` bytes that has not been touched, so that sizes which a file only claims cost nothing. False: the
  // budget does not hold it. Views of what was here end.
  bool Resize(size_t size) {
    size_ = 0;
    if (size > share_.size()) {
      data_.reset();
      if (!share_.Resize(size)) return false;
      data_.reset(new char[size]);
    }
    size_ = size;
    return true;
  }
  std::span<char> bytes() { return {data_.get(), size_}; }

 private:
  PageShare share_;  // as large as data_
  std::unique_ptr<char[]> data_;
  size_t size_ = 0;
};

}  // namespace temper

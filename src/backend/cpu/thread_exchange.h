// For tests: exchanges between ranks that are threads of one process and meet at a barrier.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <vector>

#include "device/communicator.h"

namespace temper {

// Ranks as threads, which meet in AllGather.
class ExchangeGroup {
 public:
  explicit ExchangeGroup(int size) : size_(size), meeting_(size), given_(static_cast<size_t>(size)) {}

  std::unique_ptr<Exchange> Join(int index) { return std::make_unique<Member>(this, index); }

 private:
  class Member final : public Exchange {
   public:
    Member(ExchangeGroup* group, int index) : group_(group), index_(index) {}
    // A member that has left neither blocks the others nor contributes.
    ~Member() override {
      group_->given_[static_cast<size_t>(index_)] = {};
      group_->meeting_.arrive_and_drop();
    }
    int index() const override { return index_; }
    int size() const override { return group_->size_; }
    Status AllGather(std::span<const float> mine, std::span<float> all) override {
      EXPECT_EQ(all.size(), mine.size() * static_cast<size_t>(size()));
      group_->given_[static_cast<size_t>(index_)] = mine;
      group_->meeting_.arrive_and_wait();
      for (size_t i = 0; i < group_->given_.size(); ++i) {
        const std::span<const float> theirs = group_->given_[i];
        EXPECT_EQ(theirs.size(), mine.size()) << "ranks " << index_ << " and " << i << " exchange different rows";
        std::copy_n(theirs.begin(), std::min(theirs.size(), mine.size()), all.begin() + i * mine.size());
      }
      group_->meeting_.arrive_and_wait();
      return OkStatus();
    }

   private:
    ExchangeGroup* const group_;
    const int index_;
  };

  const int size_;
  std::barrier<> meeting_;
  std::vector<std::span<const float>> given_;
};

}  // namespace temper

// For tests: attention by a library with cuDNN's functions that computes what they mean (tests/device/cudnn).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/gpu/attention/cudnn_attention.h"
#include "base/project_folder_for_test.h"

namespace temper::gpu {

inline const std::string kTestCudnn = std::string(kBuildFolder) + "/test_cudnn/libtest_cudnn.so.9";

// Records the requests.
class CountedAttention final : public PackedAttention {
 public:
  CountedAttention() : library_(*MakeCudnnAttention(&runs, kTestCudnn)) {}
  Result<std::unique_ptr<PackedPass>> Make(const PackedShape& shape) override {
    shapes.push_back(shape);
    TEMPER_ASSIGN_OR_RETURN(auto pass, library_->Make(shape));
    return std::unique_ptr<PackedPass>(std::make_unique<Counting>(std::move(pass), &runs));
  }
  std::vector<PackedShape> shapes;  // of plans
  int runs = 0;                     // of passes

 private:
  class Counting final : public PackedPass {
   public:
    Counting(std::unique_ptr<PackedPass> pass, int* runs) : pass_(std::move(pass)), runs_(*runs) {}
    Status Run(const PackedOperands& operands) override {
      ++runs_;
      return pass_->Run(operands);
    }

   private:
    const std::unique_ptr<PackedPass> pass_;
    int& runs_;
  };
  const std::unique_ptr<PackedAttention> library_;
};

}  // namespace temper::gpu

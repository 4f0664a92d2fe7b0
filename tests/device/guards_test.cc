// Tests of GPU kernels notice a kernel that writes outside its operands.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstring>

#include "../apart_device.h"
#include "backend/gpu/gpus_under_test.h"
#include "graph/named_ops.h"

namespace temper::guards_test {
namespace {

// Its kernels copy their input, and write some zeros after the output, or before it.
class Overrunning final : public KernelTable {
 public:
  Overrunning(size_t behind, size_t before) : behind_(behind), before_(before) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return std::unique_ptr<Kernel>(std::make_unique<Copying>(*this, static_cast<size_t>(spec.outputs[0].bytes().v)));
  }

 private:
  class Copying final : public Kernel {
   public:
    Copying(const Overrunning& table, size_t bytes) : table_(table), bytes_(bytes) {}
    Status Run(const KernelArgs& args) override {
      std::memcpy(args.outputs[0], args.inputs[0], bytes_);
      std::memset(args.outputs[0] + bytes_, 0, table_.behind_);
      std::memset(args.outputs[0] - table_.before_, 0, table_.before_);
      return OkStatus();
    }

   private:
    const Overrunning& table_;
    const size_t bytes_;
  };
  const std::string name_ = "overrunning";
  const size_t behind_, before_;
};

// One kernel's result from five numbers.
TestTensor CopyOnDevice(size_t behind, size_t before) {
  Overrunning kernels(behind, before);
  ApartDevice device(kernels);
  const auto memory = device.Allocate(MiB(1));
  TEMPER_CHECK(memory.ok()) << memory.status().message();
  OnDevice table(device, *memory);
  const TensorType type{DType::kF32, {5}};
  const TestTensor from = RandomTensor(type, 1);
  TestTensor to(type);
  const auto kernel = table.Make({.op = Op::kCast, .inputs = {type}, .outputs = {type}});
  TEMPER_CHECK(kernel.ok()) << kernel.status().message();
  std::byte *const in = from.data(), *const out = to.data();
  const Status status = (*kernel)->Run({.inputs = &in, .outputs = &out});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(to.SameBits(from));
  return to;
}

TEST(GpusUnderTest, FindWhatAKernelWritesBesideItsOperands) {
  CopyOnDevice(0, 0);
  EXPECT_NONFATAL_FAILURE(CopyOnDevice(1, 0), "written behind operand 1 of cast");
  EXPECT_NONFATAL_FAILURE(CopyOnDevice(0, 1), "written behind operand 0 of cast");
}

}  // namespace
}  // namespace temper::guards_test

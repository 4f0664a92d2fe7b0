// For tests: a machine's device memory, and kernels written by hand.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ptx_machine.h"

namespace temper::ptx {

// Allocations at addresses of their own, far apart.
class Heap : public AddressSpace {
 public:
  template <class T>
  uint64_t Put(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const uint64_t address = next_;
    next_ += (bytes.size() + (1 << 20)) / 256 * 256;
    allocations_[address] = std::move(bytes);
    return address;
  }
  template <class T>
  std::vector<T> Get(uint64_t address) const {
    const std::vector<std::byte>& bytes = allocations_.at(address);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  std::byte* Find(uint64_t address, int64_t bytes) override {
    auto found = allocations_.upper_bound(address);
    if (found == allocations_.begin()) return nullptr;
    --found;
    if (address + static_cast<uint64_t>(bytes) > found->first + found->second.size()) return nullptr;
    return found->second.data() + (address - found->first);
  }

 private:
  std::map<uint64_t, std::vector<std::byte>> allocations_;
  uint64_t next_ = 0x700000000000;
};

// A file with kernel `k` of the parameters out and in (64 bits each), which %rd1 and %rd2 hold; %r0 is the thread. Has
// registers %r, %rd, %f, %fd, %rs, %p<64> and 4 KiB of `tile` in shared memory.
inline std::string FileOf(const std::string& body) {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in)\n{\n"
         ".reg .pred %p<64>; .reg .b16 %rs<64>; .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .f32 %f<128>; .reg .f64 "
         "%fd<64>;\n"
         ".shared .align 1024 .b8 tile[4096];\n"
         "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; mov.u32 %r0, %tid.x;\n" +
         body + "\nret;\n}\n";
}

// Runs `body` for `threads` threads of one block. Returns the resulting `out`, [threads] by default.
template <class Out, class In>
Result<std::vector<Out>> RunBody(const std::string& body, int threads, const std::vector<In>& in, int64_t outs = 0) {
  auto module = Module::Parse(FileOf(body));
  if (!module.ok()) return module.status();
  Heap heap;
  uint64_t out = heap.Put(std::vector<Out>(static_cast<size_t>(outs > 0 ? outs : threads))), input = heap.Put(in);
  void* arguments[] = {&out, &input};
  TEMPER_RETURN_IF_ERROR((*module)->Run({"k", {1, 1, 1}, {threads, 1, 1}, 0, arguments}, heap));
  return heap.Get<Out>(out);
}

}  // namespace temper::ptx

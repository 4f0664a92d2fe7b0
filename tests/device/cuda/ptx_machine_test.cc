#include "ptx_machine.h"

#include <cmath>
#include <limits>

#include "ptx_under_test.h"

namespace temper::ptx::ptx_machine_test {
namespace {

// out[thread] = what `body` leaves in %r1, of in[thread] in %r2.
std::vector<uint32_t> Words(const std::string& body, const std::vector<uint32_t>& in) {
  auto out = RunBody<uint32_t>(
      "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;\n"
      "ld.global.u32 %r2, [%rd5]; mov.b32 %f2, %r2;\n" +
          body + "\nst.global.u32 [%rd4], %r1;",
      static_cast<int>(in.size()), in);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? *out : std::vector<uint32_t>();
}
using W = std::vector<uint32_t>;

// The fault that `body` causes.
std::string FaultOf(const std::string& body, int threads = 32) {
  auto out = RunBody<uint32_t>(body, threads, std::vector<uint32_t>(1024));
  return out.ok() ? "" : out.status().message();
}
#define EXPECT_FAULT(body, what, ...)                                               \
  EXPECT_NE(FaultOf(body __VA_OPT__(, ) __VA_ARGS__).find(what), std::string::npos) \
      << FaultOf(body __VA_OPT__(, ) __VA_ARGS__)

TEST(PtxMachine, ThreadsOfAllBlocksRun) {
  auto module = Module::Parse(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<9>; .reg "
      ".b64 %rd<9>;\n"
      "ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
      "mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4; "
      "ret;\n}\n");
  ASSERT_TRUE(module.ok()) << module.status().message();
  Heap heap;
  uint64_t out = heap.Put(std::vector<uint32_t>(7 * 50));
  void* arguments[] = {&out};
  const Status status = (*module)->Run({"k", {7, 1, 1}, {50, 1, 1}, 0, arguments}, heap);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto x = heap.Get<uint32_t>(out);
  for (uint32_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], i);
}

TEST(PtxMachine, PathsThatPartMeetAgain) {
  // Odd lanes repeat a loop as often as their number; then all exchange.
  EXPECT_EQ(Words("and.b32 %r3, %r0, 1; setp.eq.s32 %p1, %r3, 0; mov.u32 %r1, 0; mov.u32 %r4, 0; @%p1 bra DONE;\n"
                  "LOOP: add.u32 %r1, %r1, %r2; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r0; @%p2 bra LOOP;\n"
                  "DONE: shfl.sync.bfly.b32 %r5|%p3, %r1, 1, 31, -1; mov.u32 %r1, %r5;",
                  W(32, 10)),
            [] {
              W expected(32);
              for (uint32_t i = 0; i < 32; ++i) expected[i] = i % 2 == 0 ? 10 * (i + 1) : 0;
              return expected;
            }());
}

TEST(PtxMachine, RoundsAsTheInstructionSays) {
  // 1 + 2^-24 lies between 1 and 1 + 2^-23.
  const W one = {0x3F800000};
  EXPECT_EQ(Words("add.rn.f32 %f1, %f2, 0f33800000; mov.b32 %r1, %f1;", one), W({0x3F800000}));
  EXPECT_EQ(Words("add.rp.f32 %f1, %f2, 0f33800000; mov.b32 %r1, %f1;", one), W({0x3F800001}));
  EXPECT_EQ(Words("add.rm.f32 %f1, %f2, 0fB3000000; mov.b32 %r1, %f1;", one), W({0x3F7FFFFF}));
  EXPECT_EQ(Words("fma.rz.f32 %f1, %f2, %f2, 0fB2800000; mov.b32 %r1, %f1;", one), W({0x3F7FFFFF}));
  EXPECT_EQ(Words("fma.rm.f32 %f1, %f2, 0f3FFFFFFF, 0f33800000; mov.b32 %r1, %f1;", one), W({0x3FFFFFFF}));
  EXPECT_EQ(Words("cvt.rni.s32.f32 %r1, %f2;", {0x3F000000, 0x3FC00000, 0xBFC00000, 0x7FC00000, 0x7F800000}),
            W({0, 2, 0xFFFFFFFE, 0, 0x7FFFFFFF}));
  EXPECT_EQ(Words("cvt.rzi.u32.f32 %r1, %f2;", {0x3FC00000, 0xBFC00000, 0x4F800000}), W({1, 0, 0xFFFFFFFF}));
}

TEST(PtxMachine, TheFirstOfAPairIsItsUpperHalf) {
  EXPECT_EQ(Words("cvt.rn.bf16x2.f32 %r1, %f2, 0f40000000;", {0x3F800000}), W({0x3F804000}));
  // Ties to even, and up beyond them.
  EXPECT_EQ(Words("cvt.rn.bf16x2.f32 %r1, 0f00000000, %f2;", {0x3F808000, 0x3F818000, 0x3F808001, 0x7FC00000}),
            W({0x3F80, 0x3F82, 0x3F81, 0x7FFF}));
}

TEST(PtxMachine, MinimaPreferNumbersAndSubnormalsAreFlushedWhereAsked) {
  EXPECT_EQ(Words("max.f32 %f1, %f2, 0fBF800000; mov.b32 %r1, %f1;", {0x7FC00000, 0x80000000}),
            W({0xBF800000, 0x80000000}));
  EXPECT_EQ(Words("max.NaN.f32 %f1, %f2, 0fBF800000; mov.b32 %r1, %f1;", {0x7FC00001}), W({0x7FFFFFFF}));
  EXPECT_EQ(Words("min.f32 %f1, %f2, 0f00000000; mov.b32 %r1, %f1;", {0x80000000}), W({0x80000000}));
  EXPECT_EQ(Words("mul.ftz.f32 %f1, %f2, 0f3F800000; mov.b32 %r1, %f1;", {0x80000001}), W({0x80000000}));
  EXPECT_EQ(Words("mul.f32 %f1, %f2, 0f3F800000; mov.b32 %r1, %f1;", {0x80000001}), W({0x80000001}));
  EXPECT_EQ(Words("ex2.approx.ftz.f32 %f1, %f2; mov.b32 %r1, %f1;", {0x80000000, 0xFF800000, 0xC3000000}),
            W({0x3F800000, 0, 0}));
  EXPECT_EQ(Words("cvt.sat.f32.f32 %f1, %f2; mov.b32 %r1, %f1;", {0x40000000, 0xBF800000, 0x7FC00000}),
            W({0x3F800000, 0, 0}));
  EXPECT_EQ(Words("copysign.f32 %f1, %f2, 0f40000000; mov.b32 %r1, %f1;", {0xBF800000}), W({0xC0000000}));
}

TEST(PtxMachine, IntegersAreWhatTheIsaSays) {
  EXPECT_EQ(Words("shl.b32 %r1, %r2, 32;", {1}), W({0}));
  EXPECT_EQ(Words("shr.s32 %r1, %r2, 40;", {0x80000000}), W({0xFFFFFFFF}));
  EXPECT_EQ(Words("prmt.b32 %r1, %r2, 0x33221100, 0x7531;", {0xDDCCBBAA}), W({0x3311DDBB}));
  EXPECT_EQ(Words("prmt.b32 %r1, %r2, 0, 0x4498;", {0x00FF8001}), W({0x0000FF00}));
  EXPECT_EQ(Words("mul.hi.s32 %r1, %r2, %r2;", {0xFFFF0000}), W({1}));
  EXPECT_EQ(Words("div.s32 %r1, %r2, 3;", {0xFFFFFFF8}), W({0xFFFFFFFE}));
  EXPECT_EQ(Words("rem.s32 %r1, %r2, 3;", {0xFFFFFFF8}), W({0xFFFFFFFE}));
  EXPECT_EQ(Words("bfe.s32 %r1, %r2, 4, 4;", {0x000000F0, 0x70}), W({0xFFFFFFFF, 7}));
  EXPECT_EQ(Words("bfi.b32 %r1, %r2, 0xFFFFFFFF, 8, 4;", {0x5}), W({0xFFFFF5FF}));
  EXPECT_EQ(Words("lop3.b32 %r1, %r2, 0xFF00FF00, 0xFFFF0000, 0xE8;", {0x0F0F0F0F}), W({0xFF0F0F00}));
  EXPECT_EQ(Words("shf.l.wrap.b32 %r1, %r2, %r2, 8;", {0x12345678}), W({0x34567812}));
  EXPECT_EQ(Words("clz.b32 %r1, %r2;", {0, 1, 0x80000000}), W({32, 31, 0}));
  EXPECT_EQ(Words("mov.b32 {%rs1, %rs2}, %r2; cvt.s32.s16 %r3, %rs2; cvt.u32.u16 %r4, %rs1; add.s32 %r1, %r3, %r4;",
                  {0xFFFF0005}),
            W({4}));
  // 2^32 - 1 and 1, with what is carried.
  EXPECT_EQ(Words("add.cc.u32 %r3, %r2, 1; addc.u32 %r1, 0, 0;", {0xFFFFFFFF, 0}), W({1, 0}));
  EXPECT_EQ(Words("sub.cc.u32 %r3, %r2, 1; subc.u32 %r1, 5, 0;", {0, 1}), W({4, 5}));
  EXPECT_EQ(Words("mad.lo.cc.u32 %r3, %r2, %r2, 0; madc.hi.u32 %r1, %r2, %r2, 0;", {0x10000, 0xFFFFFFFF}),
            W({1, 0xFFFFFFFE}));
}

TEST(PtxMachine, ComparisonsCombineAndGiveTheirOpposite) {
  const std::string selects = "selp.b32 %r3, 1, 0, %p1; selp.b32 %r4, 2, 0, %p2; or.b32 %r1, %r3, %r4;";
  EXPECT_EQ(Words("setp.lt.f32 %p1|%p2, %f2, 0f3F800000; " + selects, {0, 0x3F800000, 0x7FC00000}), W({1, 2, 2}));
  EXPECT_EQ(Words("setp.geu.f32 %p1|%p2, %f2, 0f3F800000; " + selects, {0, 0x3F800000, 0x7FC00000}), W({2, 1, 1}));
  EXPECT_EQ(Words("setp.gt.u32 %p3, %r2, 5; setp.lt.and.u32 %p1|%p2, %r2, 9, %p3; " + selects, {0, 7, 9}),
            W({0, 1, 2}));
}

TEST(PtxMachine, FunctionsHaveTheirOwnRegisters) {
  auto module = Module::Parse(
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".func (.param .b32 result) twice(.param .b32 x)\n{ .reg .b32 %r<3>; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, "
      "%r1;\n"
      "st.param.b32 [result+0], %r2; ret; }\n"
      ".visible .entry k(.param .u64 out)\n{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;\n"
      "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, 100; setp.lt.u32 %p1, %r1, 3; @%p1 bra SKIP;\n"
      "{ .param .b32 p0; st.param.b32 [p0+0], %r1; .param .b32 r0; call.uni (r0), twice, (p0); ld.param.b32 %r2, "
      "[r0+0]; }\n"
      "SKIP: mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2; ret; }\n");
  ASSERT_TRUE(module.ok()) << module.status().message();
  Heap heap;
  uint64_t out = heap.Put(std::vector<uint32_t>(5));
  void* arguments[] = {&out};
  const Status status = (*module)->Run({"k", {1, 1, 1}, {5, 1, 1}, 0, arguments}, heap);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(heap.Get<uint32_t>(out), W({100, 100, 100, 6, 8}));
}

TEST(PtxMachine, WhatItDoesNotKnowIsRefusedWhenRead) {
  for (const char* body : {"tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [t, {%r1}];", "add.rn.f16 %rs1, %rs2, %rs3;",
                           "add.f32 %f1, %fd2, %f3;", "mul.rn.bogus.f32 %f1, %f2, %f3;",
                           "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};"}) {
    EXPECT_FALSE(Module::Parse(FileOf(body)).ok()) << body;
  }
}

TEST(PtxFaults, MemoryThatNobodyHasAndThatIsNotAligned) {
  EXPECT_FAULT("ld.global.u32 %r1, [%rd2+4096];", "not allocated");
  EXPECT_FAULT("ld.global.u32 %r1, [%rd2+-4];", "not allocated");
  EXPECT_FAULT("ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd2+8];", "not aligned");
  EXPECT_FAULT("st.global.u32 [%rd1+126], %r0;", "not aligned");
  EXPECT_FAULT("mov.u32 %r1, tile; st.shared.u32 [%r1+4096], %r0;", "beyond");
  EXPECT_FAULT("mov.u32 %r1, 0; st.shared.u32 [%r1], %r0;", "beyond");
  EXPECT_FAULT("ld.shared.u32 %r1, [tile];", "never written");
}

TEST(PtxFaults, ThreadsThatDoNotCome) {
  const std::string half =
      "setp.lt.u32 %p1, %r0, 16; @%p1 bra A; bar.sync 0; bra B; A: add.u32 %r1, %r0, 1; bar.sync 0; B: add.u32 %r1, "
      "%r0, 2;";
  EXPECT_FAULT(half, "do not come");
  EXPECT_FAULT("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; A: add.u32 %r1, %r0, 1;", "not all threads come", 64);
  EXPECT_FAULT(
      "setp.lt.u32 %p1, %r0, 1; @%p1 bra A; shfl.sync.bfly.b32 %r1|%p2, %r0, 1, 31, -1; A: add.u32 %r1, %r0, 1;",
      "do not come");
  EXPECT_FAULT("setp.lt.u32 %p1, %r0, 1; @%p1 ret; bar.sync 0;", "do not come");
}

TEST(PtxFaults, SharedMemoryThatTwoWarpsTouchWithNoBarrierBetween) {
  const std::string address =
      "shl.b32 %r1, %r0, 2; mov.u32 %r2, tile; add.u32 %r3, %r2, %r1; xor.b32 %r4, %r1, 128; add.u32 %r5, %r2, %r4;\n";
  EXPECT_FAULT(address + "st.shared.u32 [%r3], %r0; bar.sync 0; st.shared.u32 [%r3], %r0; ld.shared.u32 %r6, [%r5];",
               "no barrier between", 64);
  EXPECT_EQ(FaultOf(address + "st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r6, [%r5];", 64), "");
  EXPECT_FAULT(address + "st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r6, [%r5]; st.shared.u32 [%r3], %r6;",
               "no barrier between", 64);
}

TEST(PtxFaults, CopiesAreThereWhenTheyAreWaitedFor) {
  const std::string copies =
      "shl.b32 %r1, %r0, 4; mov.u32 %r2, tile; add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd3, %r1; add.u64 %rd4, %rd2, "
      "%rd3;\n"
      "cp.async.cg.shared.global [%r3], [%rd4], 16; cp.async.commit_group;\n"
      "cp.async.cg.shared.global [%r3+512], [%rd4+512], 16, 0; cp.async.commit_group;\n";
  EXPECT_FAULT(copies + "ld.shared.u32 %r4, [%r3];", "under way");
  EXPECT_EQ(FaultOf(copies + "cp.async.wait_group 1; ld.shared.u32 %r4, [%r3];"), "");
  EXPECT_FAULT(copies + "cp.async.wait_group 1; ld.shared.u32 %r4, [%r3+512];", "under way");
  EXPECT_EQ(FaultOf(copies + "cp.async.wait_all; ld.shared.u32 %r4, [%r3+512];"), "");
}

}  // namespace
}  // namespace temper::ptx::ptx_machine_test

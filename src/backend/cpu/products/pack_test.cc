#include "backend/cpu/products/pack.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/cpu/emulator/emulated_amx.h"
#include "backend/cpu/kernel_twin.h"

namespace temper::pack_test {
namespace {

// The panels that PackedPanels defines, padding included; between panels anything may lie.
void ExpectPanels(const TestTensor& got, const TestTensor& want, const std::string& name) {
  ASSERT_EQ(got.type(), want.type()) << name;
  const Shape& shape = got.type().shape;
  const PackedPanels panels(got.type().layout, shape[0], shape[1]);
  constexpr int64_t kGap = 64;
  for (int64_t at = 0; at < panels.bytes().v; at += panels.panel_bytes()) {
    EXPECT_EQ(std::memcmp(got.data() + at, want.data() + at, static_cast<size_t>(panels.panel_bytes() - kGap)), 0)
        << name << ": the panel at byte " << at;
  }
}

// Whole panels and steps, parts of them, odd depths, more than a piece of either dim.
TEST(Pack, WritesThePanelsThatProductsRead) {
  constexpr int64_t kShapes[][2] = {{1, 1}, {32, 32}, {64, 96}, {33, 31}, {7, 300}, {300, 7}, {515, 129}, {66, 1700}};
  const std::vector<Isa> isas = RunnableIsas();
  for (const auto& [rows, columns] : kShapes) {
    for (const ElementLayout layout : {ElementLayout::kColumnPairs, ElementLayout::kRowPairs}) {
      const std::string name =
          "[" + std::to_string(rows) + ", " + std::to_string(columns) + "] " + std::string(ToString(layout));
      TestTensors inputs;
      inputs.push_back(RandomTensor({DType::kBF16, {rows, columns}}, 7));
      const Attributes attributes = {{"dtype", std::string("bf16")}, {"layout", std::string(ToString(layout))}};
      const TwinRun run{Op::kCast, attributes, &inputs};
      const TestTensor want = PackedAs(layout, inputs[0]);
      const TestTensors twin = RunReference(run);
      for (int64_t i = 0; i < rows * columns; ++i) ASSERT_EQ(twin[0].Get(i), want.Get(i)) << name << ": its twin";
      for (const Isa isa : isas) {
        if (isa < Isa::kAvx512Bf16Dot) continue;
        for (const int threads : {1, 3}) {
          ExpectPanels(RunFast(run, isa, threads)[0], want, name + " on " + std::string(ToString(isa)));
        }
      }
      if (std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16Dot) == isas.end()) continue;
      EmulatedAmx amx([](const KernelSpec& spec) { return MakePackOf(spec, kTilesBF16AmxEmulated); });
      ExpectPanels(RunKernel(run, amx, /*fast=*/true, 2)[0], want, name + " on " + amx.name());
    }
  }
}

}  // namespace
}  // namespace temper::pack_test

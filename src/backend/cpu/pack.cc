#include "backend/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/team.h"
#include "tensor/element_layout.h"

namespace temper {
namespace {

constexpr int64_t kWordBytes = 4, kPairBytes = kPanelLines * kWordBytes;

// One member packs a block at a time: a panel over its whole depth where depth is contiguous, else so much depth of all
// panels that the lines of a row are read in one run.
constexpr int64_t kBlockDepth = 64;
static_assert(kBlockDepth % kPanelStep == 0);

class PackKernel final : public Kernel {
 public:
  PackKernel(const KernelSpec& spec, const TileKernels& tiles, void (*from_f32)(const float*, bf16*, int64_t))
      : tiles_(tiles),
        from_f32_(from_f32),
        threads_(spec.threads),
        from_is_f32_(spec.inputs[0].dtype == DType::kF32),
        rows_are_lines_(spec.outputs[0].layout == ElementLayout::kColumnPairs),
        columns_(spec.outputs[0].shape[1]),
        lines_(spec.outputs[0].shape[rows_are_lines_ ? 0 : 1]),
        depth_(spec.outputs[0].shape[rows_are_lines_ ? 1 : 0]),
        panel_bytes_(
            PackedPanels(spec.outputs[0].layout, spec.outputs[0].shape[0], spec.outputs[0].shape[1]).panel_bytes()) {
    TEMPER_CHECK(tiles.pair_panels && tiles.nr == kPanelLines && tiles.element_size == 2)
        << "these tiles do not read packed operands";
  }

  Status Run(const KernelArgs& args) override {
    const std::byte* const x = args.inputs[0];
    std::byte* const panels = args.outputs[0];
    const auto pack = [&](int64_t line, int64_t lines, int64_t k, int64_t depth) {
      from_is_f32_ ? PackF32(reinterpret_cast<const float*>(x), line, lines, k, depth, panels)
                   : Pack(reinterpret_cast<const uint16_t*>(x) + At(line, k), columns_, line, lines, k, depth, panels);
      if (k + depth == depth_) Pad(line, lines, panels);
    };
    if (rows_are_lines_) {
      ParallelBlocks(threads_, lines_, kPanelLines,
                     [&](int64_t begin, int64_t end) { pack(begin, end - begin, 0, depth_); });
    } else {
      ParallelBlocks(threads_, depth_, kBlockDepth,
                     [&](int64_t begin, int64_t end) { pack(0, lines_, begin, end - begin); });
    }
    return OkStatus();
  }

 private:
  // Of line's element k in the source.
  int64_t At(int64_t line, int64_t k) const { return rows_are_lines_ ? line * columns_ + k : k * columns_ + line; }
  std::byte* PanelAt(std::byte* panels, int64_t line, int64_t k) const {
    return panels + line / kPanelLines * panel_bytes_ + k / 2 * kPairBytes;
  }

  // REQUIRES: line and k begin a panel and a step.
  void Pack(const uint16_t* source, int64_t stride, int64_t line, int64_t lines, int64_t k, int64_t depth,
            std::byte* panels) const {
    const PackFn pack = rows_are_lines_ ? tiles_.pack_k : tiles_.pack_lines;
    pack(source, stride, lines, tiles_.nr, true, depth, PanelAt(panels, line, k), panel_bytes_);
  }

  // A piece becomes bf16 on the stack and is packed from there, within the first-level cache.
  void PackF32(const float* source, int64_t line, int64_t lines, int64_t k, int64_t depth, std::byte* panels) const {
    constexpr int64_t kRun = 256;  // along a row of the source
    alignas(64) bf16 piece[kPanelLines * kRun];
    static_assert(kRun % kPanelLines == 0 && kRun % kPanelStep == 0 && kPanelLines == kPanelStep);
    const int64_t line_step = rows_are_lines_ ? kPanelLines : kRun, k_step = rows_are_lines_ ? kRun : kPanelStep;
    for (int64_t i = 0; i < depth; i += k_step) {
      for (int64_t j = 0; j < lines; j += line_step) {
        const int64_t deep = std::min(k_step, depth - i), wide = std::min(line_step, lines - j);
        const int64_t runs = rows_are_lines_ ? wide : deep, run = rows_are_lines_ ? deep : wide;
        for (int64_t r = 0; r < runs; ++r) {
          from_f32_(source + At(line + j, k + i) + r * columns_, piece + r * kRun, run);
        }
        Pack(reinterpret_cast<const uint16_t*>(piece), kRun, line + j, wide, k + i, deep, panels);
      }
    }
  }

  // Zeros behind the last pair of depth, up to a whole step: matrix units take whole steps.
  void Pad(int64_t line, int64_t lines, std::byte* panels) const {
    const int64_t end = (depth_ + 1) / 2 * 2, whole = (depth_ + kPanelStep - 1) / kPanelStep * kPanelStep;
    for (int64_t i = 0; i < lines; i += kPanelLines) {
      std::memset(PanelAt(panels, line + i, end), 0, static_cast<size_t>((whole - end) / 2 * kPairBytes));
    }
  }

  const TileKernels& tiles_;
  void (*const from_f32_)(const float*, bf16*, int64_t);
  const int threads_;
  const bool from_is_f32_, rows_are_lines_;
  const int64_t columns_, lines_, depth_, panel_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakePackOf(const KernelSpec& spec, const TileKernels& tiles,
                                   void (*from_f32)(const float* x, bf16* y, int64_t n)) {
  const DType from = spec.inputs[0].dtype;
  TEMPER_CHECK(spec.outputs[0].packed() && (from == DType::kF32 || from == DType::kBF16)) << ToString(spec.op);
  return std::make_unique<PackKernel>(spec, tiles, from_f32);
}

}  // namespace temper

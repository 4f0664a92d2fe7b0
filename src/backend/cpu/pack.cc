#include "backend/cpu/pack.h"

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
  PackKernel(const KernelSpec& spec, const TileKernels& tiles)
      : tiles_(tiles),
        threads_(spec.threads),
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
    const auto* const source = reinterpret_cast<const uint16_t*>(args.inputs[0]);
    std::byte* const panels = args.outputs[0];
    if (rows_are_lines_) {
      ParallelBlocks(threads_, lines_, kPanelLines, [&](int64_t begin, int64_t end) {
        tiles_.pack_k(source + begin * columns_, columns_, end - begin, tiles_.nr, true, depth_,
                      PanelAt(panels, begin, 0), panel_bytes_);
        Pad(begin, end, panels);
      });
    } else {
      ParallelBlocks(threads_, depth_, kBlockDepth, [&](int64_t begin, int64_t end) {
        tiles_.pack_lines(source + begin * columns_, columns_, lines_, tiles_.nr, true, end - begin,
                          PanelAt(panels, 0, begin), panel_bytes_);
        if (end == depth_) Pad(0, lines_, panels);
      });
    }
    return OkStatus();
  }

 private:
  std::byte* PanelAt(std::byte* panels, int64_t line, int64_t k) const {
    return panels + line / kPanelLines * panel_bytes_ + k / 2 * kPairBytes;
  }

  // Zeros behind the last pair of depth, up to a whole step: matrix units take whole steps.
  void Pad(int64_t line_begin, int64_t line_end, std::byte* panels) const {
    const int64_t end = (depth_ + 1) / 2 * 2, whole = (depth_ + kPanelStep - 1) / kPanelStep * kPanelStep;
    for (int64_t line = line_begin; line < line_end; line += kPanelLines) {
      std::memset(PanelAt(panels, line, end), 0, static_cast<size_t>((whole - end) / 2 * kPairBytes));
    }
  }

  const TileKernels& tiles_;
  const int threads_;
  const bool rows_are_lines_;
  const int64_t columns_, lines_, depth_, panel_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakePackOf(const KernelSpec& spec, const TileKernels& tiles) {
  TEMPER_CHECK(spec.op == Op::kCast && spec.outputs[0].packed()) << ToString(spec.op);
  return std::make_unique<PackKernel>(spec, tiles);
}

}  // namespace temper

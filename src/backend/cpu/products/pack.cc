#include "backend/cpu/products/pack.h"

#include <cstring>

#include "base/check.h"
#include "base/team.h"
#include "graph/named_ops.h"
#include "tensor/element_layout.h"

namespace temper {
namespace {

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
        panels_(spec.outputs[0].layout, spec.outputs[0].shape[0], columns_) {
    TEMPER_CHECK(tiles.pair_panels && tiles.nr == kPanelLines && tiles.element_size == 2)
        << "these tiles do not read packed operands";
  }

  Status Run(const KernelArgs& args) override {
    const auto* const source = reinterpret_cast<const uint16_t*>(args.inputs[0]);
    std::byte* const packed = args.outputs[0];
    if (rows_are_lines_) {
      ParallelBlocks(threads_, lines_, kPanelLines, [&](int64_t begin, int64_t end) {
        tiles_.pack_k(source + begin * columns_, columns_, end - begin, tiles_.nr, true, depth_, At(begin, 0, packed),
                      panels_.panel_bytes());
        Pad(begin, end, packed);
      });
    } else {
      ParallelBlocks(threads_, depth_, kBlockDepth, [&](int64_t begin, int64_t end) {
        tiles_.pack_lines(source + begin * columns_, columns_, lines_, tiles_.nr, true, end - begin,
                          At(0, begin, packed), panels_.panel_bytes());
        if (end == depth_) Pad(0, lines_, packed);
      });
    }
    return OkStatus();
  }

 private:
  // Where k of a line begins.
  std::byte* At(int64_t line, int64_t k, std::byte* packed) const {
    return packed + (rows_are_lines_ ? panels_.Offset(line, k) : panels_.Offset(k, line));
  }

  // Zeros behind the last pair of depth, up to a whole step: matrix units take whole steps.
  void Pad(int64_t line_begin, int64_t line_end, std::byte* packed) const {
    const int64_t end = (depth_ + 1) / 2 * 2, whole = (depth_ + kPanelStep - 1) / kPanelStep * kPanelStep;
    for (int64_t line = line_begin; line < line_end; line += kPanelLines) {
      std::byte* const from = At(line, end, packed);
      std::memset(from, 0, static_cast<size_t>(At(line, whole, packed) - from));
    }
  }

  const TileKernels& tiles_;
  const int threads_;
  const bool rows_are_lines_;
  const int64_t columns_, lines_, depth_;
  const PackedPanels panels_;
};

}  // namespace

std::unique_ptr<Kernel> MakePackOf(const KernelSpec& spec, const TileKernels& tiles) {
  TEMPER_CHECK(spec.op == Op::kCast && spec.outputs[0].packed()) << ToString(spec.op);
  return std::make_unique<PackKernel>(spec, tiles);
}

}  // namespace temper

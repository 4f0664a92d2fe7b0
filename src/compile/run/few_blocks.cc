#include "compile/run/few_blocks.h"

#include <algorithm>

namespace temper {
namespace {

// Additional blocks of a kind in a sample: two, because the effect of one may vanish in the rounding of addresses.
constexpr int64_t kMoreBlocks = 2;

// A kind of blocks: its first block, and the number of blocks in the model.
struct BlockKind {
  int block = 0;
  int64_t count = 0;
};
std::vector<BlockKind> KindsOf(const ModelFacts& facts) {
  std::vector<BlockKind> kinds;
  for (const int first : facts.kinds) {
    const auto it = std::find_if(kinds.begin(), kinds.end(), [&](const BlockKind& k) { return k.block == first; });
    if (it == kinds.end()) {
      kinds.push_back({first, 1});
    } else {
      ++it->count;
    }
  }
  return kinds;
}

}  // namespace

FewBlocks::FewBlocks(const Model& model, int64_t between) : blocks_(static_cast<int64_t>(model.facts().kinds.size())) {
  // The first and the last block, and between them some of each kind: so there are some that are neither first nor
  // last.
  std::vector<BlockKind> kinds = KindsOf(model.facts());
  std::vector<int> few = {0};
  for (const BlockKind& kind : kinds) few.insert(few.end(), static_cast<size_t>(between), kind.block);
  few.push_back(static_cast<int>(blocks_ - 1));
  if (blocks_ <= static_cast<int64_t>(few.size()) + kMoreBlocks) return;
  few_ = model.WithBlocks(few);
  for (size_t k = 0; k < kinds.size(); ++k) {
    std::vector<int> more = few;
    // In front of its kind: blocks that take a value stand behind the one that gives it.
    more.insert(more.begin() + 1 + static_cast<std::ptrdiff_t>(k) * between, kMoreBlocks, kinds[k].block);
    const auto of_kind = [&](int b) { return model.facts().kinds[static_cast<size_t>(b)] == kinds[k].block; };
    samples_.push_back({model.WithBlocks(more), kinds[k].count, std::count_if(few.begin(), few.end(), of_kind)});
  }
}

std::optional<FewBlocks::Lines> FewBlocks::Follow(const FiguresOf& figures) const {
  const auto low = figures(*few_);
  if (!low) return std::nullopt;
  Lines lines{.low = *low};
  for (const Sample& sample : samples_) {
    const auto high = figures(*sample.model);
    if (!high) return std::nullopt;
    lines.highs.push_back(*high);
  }
  return lines;
}

StepFigures FewBlocks::Of(const Lines& lines, int64_t blocks) const {
  std::vector<MoreOfKind> more;
  for (size_t k = 0; k < samples_.size(); ++k) {
    const double here = static_cast<double>(samples_[k].blocks * blocks) / static_cast<double>(blocks_);
    more.push_back({lines.highs[k], here - static_cast<double>(samples_[k].in_few)});
  }
  return Extrapolated(lines.low, kMoreBlocks, more);
}

}  // namespace temper

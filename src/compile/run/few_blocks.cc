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
  const std::vector<BlockKind> kinds = KindsOf(model.facts());
  const auto is_single = [&](const BlockKind& kind) {
    return kind.count == 1 && kind.block > 0 && kind.block < static_cast<int>(blocks_) - 1;
  };
  singles_ = std::count_if(kinds.begin(), kinds.end(), is_single);
  // The first and the last block, and between them some of each kind: so there are some that are neither first nor
  // last. Blocks that are single in their kind stand for one of each of the others there, if others are left.
  const int64_t of_kind = std::max<int64_t>(1, between - (singles_ > 0 ? 1 : 0));
  std::vector<int> few = {0}, one_of_each;
  for (const BlockKind& kind : kinds) {
    few.insert(few.end(), static_cast<size_t>(is_single(kind) ? 1 : of_kind), kind.block);
    one_of_each.push_back(kind.block);
  }
  few.push_back(static_cast<int>(blocks_ - 1));
  if (blocks_ <= static_cast<int64_t>(few.size()) + kMoreBlocks) return;
  // The teacher keeps its blocks: a part of every figure that is alike.
  const auto with = [&model](std::span<const int> blocks) {
    std::unique_ptr<Model> cut = model.WithBlocks(blocks);
    cut->LearnFrom(model.teacher());
    return cut;
  };
  few_ = with(few);
  one_of_each_ = with(one_of_each);
  for (const BlockKind& kind : kinds) {
    const auto of_this = [&](int b) { return model.facts().kinds[static_cast<size_t>(b)] == kind.block; };
    const int64_t in_few = std::count_if(few.begin(), few.end(), of_this);
    kinds_.push_back({kind.count, in_few, is_single(kind)});
    if (is_single(kind)) continue;
    std::vector<int> more = few;
    // In front of its kind: blocks that take a value stand behind the one that gives it.
    more.insert(std::lower_bound(more.begin() + 1, more.end() - 1, kind.block), kMoreBlocks, kind.block);
    samples_.push_back({with(more), kind.count, in_few});
  }
}

std::optional<FewBlocks::Lines> FewBlocks::Follow(const FiguresOf& figures,
                                                  const std::function<bool(const StepFigures&)>& promises) const {
  const auto low = figures(*few_);
  if (!low || (promises && !promises(*low))) return std::nullopt;
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
    more.push_back({lines.highs[k], Share(samples_[k].blocks, blocks) - static_cast<double>(samples_[k].in_few)});
  }
  return Extrapolated(lines.low, kMoreBlocks, more);
}

double FewBlocks::CountOf(size_t kind, int64_t blocks) const {
  return kinds_[kind].is_single ? 1 : Share(kinds_[kind].blocks, blocks);
}

double FewBlocks::AddedTo(std::span<const double> of_each, int64_t blocks) const {
  double sum = 0;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    sum += (CountOf(k, blocks) - static_cast<double>(kinds_[k].in_few)) * of_each[k];
  }
  return sum;
}

bool FewBlocks::HasAllOf(int64_t blocks) const {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    if (CountOf(k, blocks) < static_cast<double>(kinds_[k].in_few)) return false;
  }
  return true;
}

double FewBlocks::Share(int64_t of_kind, int64_t blocks) const {
  return static_cast<double>(of_kind * std::max<int64_t>(blocks - singles_, 0)) /
         static_cast<double>(blocks_ - singles_);
}

}  // namespace temper

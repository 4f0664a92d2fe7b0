#include "plan/saved_slices.h"

#include <fmt/core.h>

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "format/transpose.h"
#include "tensor/tiling.h"

namespace temper {
namespace {

// Of one tensor: what all ranks write.
struct Saved {
  std::string weight;  // one that lies in it
  Shape shape;
  std::vector<Box> slices;
  std::vector<int> ranks;  // that write them
};

}  // namespace

Status CheckSavedSlices(std::span<const StoredWeight> weights, const std::map<std::string, Sharding>& shardings,
                        const Mesh& mesh) {
  const auto sharding_of = [&](const StoredWeight& w) {
    const auto it = shardings.find(w.name);
    return it == shardings.end() ? Sharding() : it->second;
  };
  AxisSet split;
  for (const StoredWeight& w : weights) split |= sharding_of(w).split();
  std::map<std::string, Saved> saved;
  std::set<std::tuple<std::string, std::string>> taken;  // the tensor and the box of parts that lower ranks have
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    // Others have copies of what a lower rank has.
    if (mesh.IndexIn(mesh.axes() - split, rank) != 0) continue;
    std::map<std::string, std::vector<Box>> own;
    std::map<std::string, bool> transposed;
    for (const StoredWeight& w : weights) {
      const Box box = BoxOf(w.shape, sharding_of(w), mesh, rank);
      const PartView part(View{nullptr, {DType::kF32, box.shape}}, w.shape, box.begin);
      for (const WeightSource::FilePart& in_file : w.source.FileParts(part)) {
        const std::string& tensor = in_file.tensor->name;
        Saved& of_tensor = saved[tensor];
        of_tensor.weight = w.name;
        of_tensor.shape = in_file.tensor->shape;
        const Box written{in_file.part.begin, in_file.part.view.type.shape};
        if (written.shape.elements() == 0 && of_tensor.shape.elements() != 0) continue;
        if (!taken.emplace(tensor, written.begin.ToString() + written.shape.ToString()).second) continue;
        own[tensor].push_back(written);
        transposed[tensor] = in_file.transposed;
      }
    }
    for (const auto& [tensor, boxes] : own) {
      for (const std::vector<size_t>& group : JoinRows(boxes)) {
        Box slice = boxes[group[0]];
        for (size_t i = 1; i < group.size(); ++i) {
          slice.shape.set_dim(0, slice.shape[0] + boxes[group[i]].shape[0]);
        }
        if (transposed[tensor]) slice = {Transposed(slice.begin), Transposed(slice.shape)};
        saved[tensor].slices.push_back(slice);
        saved[tensor].ranks.push_back(rank);
      }
    }
  }
  for (const auto& [tensor, of] : saved) {
    const std::string fault = FaultOfTiling(of.shape, of.slices, [&](size_t i) {
      return fmt::format("the slice {} at {} of rank {}", of.slices[i].shape.ToString(), of.slices[i].begin.ToString(),
                         of.ranks[i]);
    });
    if (fault.empty()) continue;
    return InvalidArgument(
        fmt::format("mesh {}: checkpoints of this run could not be saved: tensor {} of shape {}: {}. Keep it whole "
                    "(placement: [['{}', 'replicate']]), or take another mesh",
                    mesh.ToString(), tensor, of.shape.ToString(), fault, of.weight));
  }
  return OkStatus();
}

}  // namespace temper

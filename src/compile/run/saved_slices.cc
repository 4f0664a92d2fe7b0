#include "compile/run/saved_slices.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "format/transpose.h"
#include "tensor/tiling.h"

namespace temper {
namespace {

// Of one tensor: what all ranks write.
struct Saved {
  std::string tensor, weight;  // weight: one that lies in it
  Shape shape;
  bool transposed = false;
  std::vector<Box> slices;
  std::vector<int> ranks;  // that write them
};

}  // namespace

Status CheckSavedSlices(std::span<const StoredWeight> weights, const std::map<std::string, Sharding>& shardings,
                        const Mesh& mesh) {
  std::vector<Saved> saved;
  std::map<const FileTensor*, size_t> place;  // in `saved`
  std::map<std::string, size_t> by_name;
  std::vector<Sharding> sharding;  // of each weight
  AxisSet split;
  for (const StoredWeight& w : weights) {
    for (const FileTensor& tensor : w.source.tensors()) {
      const auto [it, fresh] = by_name.try_emplace(tensor.name, saved.size());
      if (fresh) saved.push_back({tensor.name, w.name, tensor.shape, w.source.transposed(), {}, {}});
      place[&tensor] = it->second;
    }
    const auto it = shardings.find(w.name);
    sharding.push_back(it == shardings.end() ? Sharding() : it->second);
    split |= sharding.back().split();
  }
  std::vector<std::vector<Box>> own(saved.size());  // of the rank, by tensor
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    // Along other axes a lower rank has the same.
    if (mesh.IndexIn(mesh.axes() - split, rank) != 0) continue;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (mesh.IndexIn(mesh.axes() - sharding[i].split(), rank) != 0) continue;
      const Box box = BoxOf(weights[i].shape, sharding[i], mesh, rank);
      const PartView part(View{nullptr, {DType::kF32, box.shape}}, weights[i].shape, box.begin);
      for (const WeightSource::FilePart& in_file : weights[i].source.FileParts(part)) {
        const size_t at = place.at(in_file.tensor);
        const Shape& written = in_file.part.view.type.shape;
        if (written.elements() != 0 || saved[at].shape.elements() == 0)
          own[at].push_back({in_file.part.begin, written});
      }
    }
    for (size_t at = 0; at < own.size(); ++at) {
      for (const JoinedBoxes& joined : JoinBoxes(own[at])) {
        Box slice = joined.whole;
        if (saved[at].transposed) slice = {Transposed(slice.begin), Transposed(slice.shape)};
        saved[at].slices.push_back(slice);
        saved[at].ranks.push_back(rank);
      }
      own[at].clear();
    }
  }
  for (const Saved& of : saved) {
    const std::string fault = FaultOfTiling(of.shape, of.slices, [&](size_t i) {
      return fmt::format("the slice {} at {} of rank {}", of.slices[i].shape.ToString(), of.slices[i].begin.ToString(),
                         of.ranks[i]);
    });
    if (fault.empty()) continue;
    return InvalidArgument(fmt::format(
        "mesh {}: checkpoints of this run could not be saved: tensor {} of shape {}: {}. Split it over fewer "
        "ranks (less fsdp or tp, with dp beside it), or keep it whole (mesh.sharding: [['{}', 'replicate']])",
        mesh.ToString(), of.tensor, of.shape.ToString(), fault, of.weight));
  }
  return OkStatus();
}

}  // namespace temper

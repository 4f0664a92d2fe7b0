#include "compile/run/mesh_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/quantity.h"

namespace temper {
namespace {

// The sizes of tp, up to `most`, that a model can be split into.
std::string TensorSizes(int64_t most, const std::function<bool(int64_t tp)>& works) {
  std::string text;
  for (int64_t n = 2; n <= most; ++n) {
    if (works(n)) text += fmt::format("{}{}", text.empty() ? "" : ", ", n);
  }
  return text.empty() ? "none" : text;
}

// The product of all given sizes; exact up to the largest mesh.
double RanksGiven(const RunConfig::Mesh& m) {
  double ranks = static_cast<double>(m.pp);
  for (const std::optional<int64_t>& size : {m.dp, m.fsdp, m.cp, m.ep, m.tp})
    ranks *= static_cast<double>(size.value_or(1));
  return ranks;
}

// The q of q x q x depth ranks; 0 if there is none.
int64_t SideOf(int64_t tp, int64_t depth) {
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tp) / static_cast<double>(depth))));
  return side * side * depth == tp ? side : 0;
}

// For an axis whose size, times `others`, does not divide the ranks: the nearest sizes that do, ignoring fsdp.
std::vector<std::string> SizesNear(const char* name, int64_t size, int64_t others, int64_t ranks) {
  int64_t below = 0, above = 0;
  for (int64_t n = 1; n <= ranks; ++n) {
    if (ranks % (others * n) != 0) continue;
    if (n < size) below = n;
    if (n > size && above == 0) above = n;
  }
  std::vector<std::string> near;
  for (const int64_t n : {below, above}) {
    if (n > 0) near.push_back(fmt::format("mesh.{}={}", name, n));
  }
  return near;
}

// "32 heads and 8 KV heads"; without a label, "1 group of recurrent heads".
std::string Described(const std::vector<Dim>& heads) {
  std::string text;
  for (const Dim& h : heads) {
    if (!text.empty()) text += &h == &heads.back() ? " and " : ", ";
    const char* const plural = h.size == 1 ? "" : "s";
    text += h.label == DimLabel::kNone
                ? fmt::format("{} group{} of recurrent heads", h.size, plural)
                : fmt::format("{} {}head{}", h.size, h.label == DimLabel::kKvHeads ? "KV " : "", plural);
  }
  return text;
}

// Whether all heads divide evenly among `tp` ranks.
bool Divides(int64_t tp, const std::vector<Dim>& heads) {
  return std::all_of(heads.begin(), heads.end(), [&](const Dim& h) { return h.size % tp == 0; });
}

// How many of `tp` ranks have different KV heads: all, or one per KV head, with copies on the others. 0 if heads do not
// divide. Copies are an axis of the whole mesh, so all blocks must then have the same number of KV heads.
int64_t RanksOfKvHeads(int64_t tp, const std::vector<Dim>& heads) {
  if (Divides(tp, heads)) return tp;
  int64_t own = 0;
  for (const Dim& h : heads) {
    if (h.label != DimLabel::kKvHeads) {
      if (h.size % tp != 0) return 0;
    } else {
      if (tp % h.size != 0 || (own != 0 && own != h.size)) return 0;
      own = h.size;
    }
  }
  return own;
}

// `others`: the product of all axes except tp and fsdp.
Status SetTensorAxes(const RunConfig::Mesh& options, int64_t tp, int64_t others, int ranks,
                     const std::vector<Dim>& heads, MeshSpec* spec) {
  int64_t most = std::max<int64_t>(ranks, tp);
  if (options.tp_mode == TensorMode::k1d) {
    spec->residual = options.sequence_parallel ? ResidualSplit::kTokens : ResidualSplit::kWhole;
    const int64_t own = RanksOfKvHeads(tp, heads);
    if (own == 0) {
      for (const Dim& h : heads) most = std::max(most, h.size);
      const auto works = [&](int64_t n) { return RanksOfKvHeads(n, heads) != 0; };
      const std::string work = TensorSizes(most, works),
                        here = TensorSizes(ranks, [&](int64_t n) { return works(n) && ranks % (others * n) == 0; });
      if (work == "none") {
        return InvalidArgument(
            fmt::format("mesh.tp: {} do not divide among {} ranks, nor among any other number: use "
                        "mesh.fsdp, mesh.pp or mesh.dp",
                        Described(heads), tp));
      }
      return InvalidArgument(fmt::format("mesh.tp: {} do not divide among {} ranks; sizes of tp that work: {}{}",
                                         Described(heads), tp, work,
                                         here == work ? "" : fmt::format("; on {} ranks: {}", ranks, here)));
    }
    spec->mesh.set_size(Axis::kTp, static_cast<int>(own));
    spec->mesh.set_size(Axis::kCopy, static_cast<int>(tp / own));
    return OkStatus();
  }
  spec->residual = ResidualSplit::kHidden;
  const int64_t depth = options.tp_mode == TensorMode::k25d ? options.tp_depth : 1;
  const int64_t side = SideOf(tp, depth);
  if (side == 0) {
    return InvalidArgument(fmt::format("mesh.tp: {} ranks do not form a {}; tp should be {}, such as {} or {}", tp,
                                       depth == 1 ? "square" : fmt::format("stack of {} squares", depth),
                                       depth == 1 ? "q x q" : "depth x q x q", depth * 4, depth * 9));
  }
  if (!Divides(side, heads)) {
    return InvalidArgument(fmt::format("mesh.tp: {} do not divide among {} columns of ranks; sizes of tp that work: {}",
                                       Described(heads), side, TensorSizes(most, [&](int64_t n) {
                                         const int64_t q = SideOf(n, depth);
                                         return q > 1 && Divides(q, heads);
                                       })));
  }
  spec->mesh.set_size(Axis::kDepth, static_cast<int>(depth));
  spec->mesh.set_size(Axis::kRow, static_cast<int>(side));
  spec->mesh.set_size(Axis::kTp, static_cast<int>(side));
  return OkStatus();
}

Status SetGatheredBlocks(const RunConfig::Mesh& options, MeshSpec* spec) {
  if (!options.reshard_after_forward) spec->gathered_blocks = kAllBlocks;
  if (!options.gathered_blocks) return OkStatus();
  const auto refused = [&](const char* why) {
    return InvalidArgument(fmt::format("mesh.gathered_blocks is {}: {}", *options.gathered_blocks, why));
  };
  if (!options.reshard_after_forward)
    return refused("mesh.reshard_after_forward false already keeps the weights of all blocks");
  if (options.pp > 1)
    return refused("a pipeline's stages cannot keep the weights of only some blocks; remove it, or set mesh.pp=1");
  spec->gathered_blocks = static_cast<int>(std::min<int64_t>(*options.gathered_blocks, kAllBlocks));
  return OkStatus();
}

Status SetPipeline(const RunConfig::Mesh& options, MeshSpec* spec) {
  const bool interleaved = options.pp_schedule == PipelineKind::kInterleaved;
  if (options.pp_chunks && !interleaved) {
    return InvalidArgument(
        fmt::format("mesh.pp_chunks is {}: it needs mesh.pp_schedule interleaved", *options.pp_chunks));
  }
  if (options.pp == 1 && !options.pp_layers.empty()) {
    return InvalidArgument("mesh.pp_layers needs a pipeline: set mesh.pp, too");
  }
  if (options.pp == 1) return OkStatus();
  spec->mesh.set_size(Axis::kPp, static_cast<int>(options.pp));
  spec->pipeline.kind = options.pp_schedule;
  spec->pipeline.chunks_per_stage = static_cast<int>(options.pp_chunks.value_or(interleaved ? 2 : 1));
  spec->pipeline.layers.assign(options.pp_layers.begin(), options.pp_layers.end());
  return OkStatus();
}

}  // namespace

int RanksNamed(const RunConfig& config) {
  const double named = std::max(static_cast<double>(config.machine.nprocs), RanksGiven(config.mesh));
  return static_cast<int>(std::min(named, kMostRanks + 1.0));
}

Result<MeshSpec> MeshOf(const RunConfig& config, int ranks, int rank, const std::vector<Dim>& heads) {
  const RunConfig::Mesh& options = config.mesh;
  if (options.tp_depth > 1 && options.tp_mode != TensorMode::k25d) {
    return InvalidArgument(fmt::format("mesh.tp_depth is {}: it needs mesh.tp_mode 2.5d", options.tp_depth));
  }
  if (const double given = RanksGiven(options); given > kMostRanks || ranks > kMostRanks) {
    return InvalidArgument(fmt::format("mesh: {:.0f} ranks are more than the largest mesh, {}",
                                       std::max(given, static_cast<double>(ranks)), kMostRanks));
  }
  const int64_t tp = options.tp.value_or(1), dp = options.dp.value_or(1), cp = options.cp.value_or(1), pp = options.pp;
  const int64_t ep = options.ep.value_or(1), others = tp * dp * cp * pp * ep;
  const int64_t fsdp = options.fsdp.value_or(std::max<int64_t>(ranks / others, 1));
  if (others * fsdp != ranks) {
    std::vector<std::string> work;
    if (ranks == 1) {  // the run was started as one process
      work.push_back(fmt::format("start them on this machine by --nprocs {}", others * fsdp));
    } else if (ranks % others == 0) {
      work.push_back(fmt::format("mesh.fsdp={} would use them all", ranks / others));
    } else {
      work.push_back(fmt::format("{} would do", Counted(others * fsdp, "rank")));
      const std::pair<const char*, int64_t> axes[] = {{"pp", pp}, {"dp", dp}, {"cp", cp}, {"ep", ep}, {"tp", tp}};
      for (const auto& [name, size] : axes) {
        if (size == 1) continue;
        const auto near = SizesNear(name, size, others / size, ranks);
        work.insert(work.end(), near.begin(), near.end());
      }
      work.push_back(fmt::format("mesh.fsdp={} alone", ranks));
    }
    return InvalidArgument(
        fmt::format("mesh: {}dp={} x fsdp={} x cp={} x {}tp={} is {}, but the run has {} (nprocs, mpirun or "
                    "srun say how many): {}",
                    pp > 1 ? fmt::format("pp={} x ", pp) : "", dp, fsdp, cp, ep > 1 ? fmt::format("ep={} x ", ep) : "",
                    tp, others * fsdp, Counted(ranks, "rank"), fmt::join(work, ", or ")));
  }
  MeshSpec spec{.rank = rank,
                .overlap = options.overlap,
                .decisions = {.grad_sync = options.grad_sync, .embedding = options.embedding, .mlp = options.mlp}};
  TEMPER_RETURN_IF_ERROR(SetGatheredBlocks(options, &spec));
  TEMPER_RETURN_IF_ERROR(SetPipeline(options, &spec));
  for (const auto& [pattern, sharding] : options.sharding) spec.rules.push_back({pattern, sharding});
  spec.mesh.set_size(Axis::kDp, static_cast<int>(dp));
  spec.mesh.set_size(Axis::kFsdp, static_cast<int>(fsdp));
  spec.mesh.set_size(Axis::kCp, static_cast<int>(cp));
  spec.mesh.set_size(Axis::kEp, static_cast<int>(ep));
  TEMPER_RETURN_IF_ERROR(SetTensorAxes(options, tp, others / tp, ranks, heads, &spec));
  return spec;
}

std::string NoteOn(const Mesh& mesh) {
  const int copies = mesh.size(Axis::kCopy);
  if (copies == 1) return "";
  return fmt::format("there are fewer KV heads than tensor-parallel ranks: each of the {} is on {} ranks",
                     mesh.size(Axis::kTp), copies);
}

}  // namespace temper

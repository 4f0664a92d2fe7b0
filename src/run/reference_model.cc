#include "run/reference_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "device/device_part.h"
#include "graph/graph.h"
#include "run/other_token.h"

namespace temper {
namespace {

void CompareTokens(const OpenedModel& own, const std::string& own_name, const OpenedModel& reference,
                   const std::string& path) {
  if (own.folder() == reference.folder()) return;
  const auto other = FirstOtherToken(own, reference);
  if (!other) return;
  LogWarning(fmt::format(
      "reference {}: token {} is {} there, and {} in {}, which makes the tokens that both score: the comparison means "
      "nothing",
      path, other->id, other->theirs, other->own, own_name));
}

}  // namespace

Result<OpenedModel> OpenReference(Env& env, const std::string& path, const OpenedModel& own,
                                  const std::string& own_name, int64_t max_seq_len) {
  TEMPER_ASSIGN_OR_RETURN(OpenedModel reference, OpenedModel::Open(env, {.model = path}));
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("reference {}: {}. It is scored in the memory of the run's model and needs its shape: merge an "
                    "adapter by temper export, and give a model of the same architecture and sizes",
                    path, why));
  };
  if (reference.adapter()) return refuse("it is an adapter");
  const Model &model = own.model(), &other = reference.model();
  const bool same = model.facts().architecture == other.facts().architecture &&
                    std::equal(model.weights().begin(), model.weights().end(), other.weights().begin(),
                               other.weights().end(), [](const WeightDeclaration& a, const WeightDeclaration& b) {
                                 return a.name == b.name && a.shape == b.shape;
                               });
  if (!same) return refuse("its weights have other names or sizes than those of " + own_name);
  // What the run's Program computes, of rotary embeddings, norms, windows.
  const ForwardSpec forward{.tokens = max_seq_len, .row = max_seq_len};
  if (PrintGraph(model.Forward(forward)) != PrintGraph(other.Forward(forward))) {
    return refuse("its config.json computes something else than that of " + own_name);
  }
  CompareTokens(own, own_name, reference, path);
  TEMPER_RETURN_IF_ERROR(reference.OpenWeights());
  return reference;
}

Status LoadReference(const OpenedModel& reference, const std::vector<LoraModule>& adapters,
                     std::span<const TrainedRows> rows, const BufferLookup& buffer, const RankOfMachine& here) {
  HostWindow window;
  const FillBuffer fill = [&](const std::string& name, const std::function<void(const PartView&)>& write) {
    const DevicePart to = buffer(name);
    if (!to.exists()) return OkStatus();
    return window.Fill(to, [&](const PartView& piece) {
      write(piece);
      return OkStatus();
    });
  };
  TEMPER_RETURN_IF_ERROR(InitializeLora(adapters, /*seed=*/0, fill));
  TEMPER_RETURN_IF_ERROR(reference.Load(buffer, here.rank, here.ranks));
  TEMPER_RETURN_IF_ERROR(reference.LoadRowsBeside(rows, buffer));
  return reference.LoadRowNormsOf(adapters, NormsOf::kWeight, /*magnitudes=*/true, buffer);
}

}  // namespace temper

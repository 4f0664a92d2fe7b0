#include "run/reference_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "device/device_part.h"
#include "graph/graph.h"

namespace temper {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json";

// Whether both have a tokenizer, and not the same.
bool TokenizersDiffer(Env& env, const OpenedModel& one, const OpenedModel& other) {
  const std::string a = JoinPath(one.folder(), kTokenizerFile), b = JoinPath(other.folder(), kTokenizerFile);
  if (a == b || !env.IsFile(a) || !env.IsFile(b)) return false;
  const auto of_one = ReadTextFile(env, a), of_other = ReadTextFile(env, b);
  return of_one.ok() && of_other.ok() && *of_one != *of_other;
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
  if (TokenizersDiffer(env, own, reference)) {
    LogWarning(fmt::format(
        "reference {}: its {} is not that of {}, which makes the tokens that both score: where they stand for other "
        "texts, the comparison means nothing",
        path, kTokenizerFile, own_name));
  }
  TEMPER_RETURN_IF_ERROR(reference.OpenWeights());
  return reference;
}

Status LoadReference(const OpenedModel& reference, const std::vector<LoraModule>& adapters, const BufferLookup& buffer,
                     const RankOfMachine& here) {
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
  return reference.LoadRowNormsOf(adapters, NormsOf::kWeight, /*magnitudes=*/true, buffer);
}

}  // namespace temper

#include "run/reference_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "data/tokenizer/tokenizer.h"
#include "device/device_part.h"
#include "format/quoted.h"
#include "graph/graph.h"

namespace temper {
namespace {

// The first token that stands for another text in the other model, as far as both have tokenizers. Their files may
// differ without that: a run writes them as transformers reads them.
std::optional<int32_t> FirstOtherToken(const Tokenizer& one, const Tokenizer& other) {
  for (int32_t id = 0; id < one.vocab_size(); ++id) {
    const std::string token = one.IdToToken(id);
    if (!token.empty() && (id >= other.vocab_size() || other.IdToToken(id) != token)) return id;
  }
  return std::nullopt;
}

void CompareTokens(const OpenedModel& own, const std::string& own_name, const OpenedModel& reference,
                   const std::string& path) {
  if (own.folder() == reference.folder()) return;
  const auto of_own = own.LoadTokenizer(), of_other = reference.LoadTokenizer();
  if (!of_own.ok() || !of_other.ok()) return;  // who needs one says so
  const auto id = FirstOtherToken(**of_own, **of_other);
  if (!id) return;
  const std::string theirs = *id < (*of_other)->vocab_size() ? (*of_other)->IdToToken(*id) : "";
  LogWarning(fmt::format(
      "reference {}: token {} is {} there, and {} in {}, which makes the tokens that both score: the comparison means "
      "nothing",
      path, *id, theirs.empty() ? "none" : Quoted(theirs), Quoted((*of_own)->IdToToken(*id)), own_name));
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

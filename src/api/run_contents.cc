#include "api/run_contents.h"

#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/base_digest.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/training_state.h"
#include "run/products_of_run.h"
#include "run/run_record.h"

namespace temper {

Result<CheckpointContents> ContentsOf(const TrainingRun& run) {
  const RunConfig& c = run.config();
  CheckpointContents contents;
  contents.kind = run.compiled.trains.all_weights ? CheckpointKind::kFull : CheckpointKind::kLora;
  contents.optimizer = c.optimizer.rule->name;
  const Ranks& ranks = run.setup.ranks;
  TEMPER_ASSIGN_OR_RETURN(contents.identity,
                          IdentityOf(run.compiled, run.engine.kernels_name(), c.machine.device, ranks));
  contents.tensors =
      TrainingState(run.compiled.train(), run.engine.Lookup(), run.compiled.stored, ranks.rank(), ranks.size());
  contents.texts.push_back({kRunConfigFile, SavedConfig(c)});
  if (run.setup.keeps_base()) {
    TEMPER_ASSIGN_OR_RETURN(std::string base, DescribeBase(run.setup.model.weights()));
    contents.texts.push_back({kBaseFile, std::move(base)});
  }
  if (const OpenedModel* const teacher = run.setup.model.teacher()) {
    TEMPER_ASSIGN_OR_RETURN(std::string digest, teacher->Digest());
    contents.identity.environment["teacher"] = std::move(digest);
  }
  if (!run.rates->text().empty()) contents.texts.push_back({kRatesFile, run.rates->text()});
  if (const ProductChoices& products = run.engine.products; !products.by_maker.empty()) {
    contents.identity.environment["timed_products"] = true;
    contents.texts.push_back({kProductsFile, FormatProducts(products)});
  }
  TEMPER_ASSIGN_OR_RETURN(const auto of_template, run.setup.model.FilesOfTemplate());
  const std::optional<ClassHead>& head = run.setup.model.class_head();
  const bool adds_head = head && head->added;
  if (contents.kind == CheckpointKind::kLora) {
    contents.texts.push_back(
        {kAdapterConfigFile, FormatLoraConfig(SavedLora(c.lora, run.compiled.trains, run.setup.model))});
  } else {
    TEMPER_ASSIGN_OR_RETURN(const auto names, CompanionFiles(PosixEnv(), run.setup.model.folder()));
    for (const std::string& name : names) {
      if (adds_head && name == kModelConfigFile) continue;
      const bool replaced = of_template.contains(name) || (!of_template.empty() && IsInCompanionFolder(name));
      if (!replaced) contents.copies.push_back({name, JoinPath(run.setup.model.folder(), name)});
    }
  }
  if (adds_head) contents.texts.push_back({kModelConfigFile, head->config});
  for (const auto& [name, text] : of_template) contents.texts.push_back({name, text});
  return contents;
}

Result<Bytes> DiskBytes(const CheckpointContents& contents, const TrainingRun& run) {
  TEMPER_ASSIGN_OR_RETURN(Bytes sum, CheckpointBytes(PosixEnv(), contents));
  std::set<std::string_view> counted;  // a rank may have several parts of a tensor
  for (const CheckpointTensor& t : contents.tensors) {
    if (IsValueName(t.name) && counted.insert(t.name).second) sum += t.whole().bytes();
  }
  const bool whole_folder = contents.kind == CheckpointKind::kFull && run.setup.keeps_base();
  if (whole_folder) sum += run.setup.model.BytesOfOthers();
  // Ranks of one stage have the same tensors.
  const Mesh& mesh = run.compiled.mesh.mesh;
  const int stages = mesh.size(Axis::kPp);
  if (stages == 1 || run.setup.ranks.alone()) return sum;
  double all = run.setup.ranks.rank() % (mesh.ranks() / stages) == 0 ? static_cast<double>(sum.v) : 0;
  TEMPER_RETURN_IF_ERROR(run.setup.ranks.communicator()->AllReduceSum({&all, 1}));
  return Bytes{static_cast<int64_t>(all)};
}

}  // namespace temper

#include "cli/run_record.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/compiled_run.h"
#include "train/run_options.h"

namespace temper {

std::string SavedConfig(const RunConfig& config) {
  RunConfig saved = config;
  saved.output.overwrite = false;
  saved.output.resume.reset();
  return PrintRunConfig(saved);
}

AdapterConfig AdapterConfigOf(const RunConfig& config, const std::vector<LoraTarget>& targets,
                              const std::string& base_folder) {
  const LoraSpec spec = LoraSpecOf(config.lora);
  AdapterConfig adapter{.r = spec.r,
                        .alpha = spec.alpha,
                        .dropout = spec.dropout,
                        .rslora = spec.rslora,
                        .target_regex = spec.target_regex,
                        .target_modules = spec.target_modules,
                        .exclude_regex = spec.exclude_regex,
                        .exclude_modules = spec.exclude_modules,
                        .rank_pattern = spec.rank_pattern,
                        .alpha_pattern = spec.alpha_pattern};
  if (spec.target_regex.empty() && spec.target_modules.empty()) {
    // all-linear, spelled out: other readers of adapters do not know the word.
    std::set<std::string> names;
    for (const LoraTarget& t : targets) names.insert(t.module.substr(t.module.rfind('.') + 1));
    adapter.target_modules.assign(names.begin(), names.end());
  }
  std::error_code error;
  const auto absolute = std::filesystem::absolute(base_folder, error);
  adapter.base_model = error ? base_folder : absolute.lexically_normal().string();
  return adapter;
}

Result<RunIdentity> IdentityOf(const CompiledRun& run, const std::string& kernels, const Ranks& ranks) {
  const Program& train = run.train();
  RunIdentity identity;
  // Of the first rank. Ranks of one stage run the same program on other parts; those of another stage of a pipeline run
  // another, which follows from the same graph and mesh, as this one does.
  TEMPER_ASSIGN_OR_RETURN(identity.program_hash, ranks.FromFirst(fmt::format(
                                                     "{:016x}", run.hash_without_limits.value_or(ProgramHash(train)))));
  identity.environment = {{"threads", train.threads}, {"kernels", kernels}, {"temper", TEMPER_VERSION}};
  if (!ranks.alone()) identity.environment["mesh"] = run.mesh.mesh.ToString();
  for (const Decision& d : run.decisions) identity.decisions[d.what] = d.chosen;
  return identity;
}

}  // namespace temper

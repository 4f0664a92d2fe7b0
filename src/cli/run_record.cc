#include "cli/run_record.h"

#include <dnnl.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/compiled_run.h"
#include "train/run_options.h"

namespace temper {

std::string SavedConfig(const RunConfig& config) {
  RunConfig saved = config;
  saved.output.overwrite = false;
  saved.output.resume.reset();
  return PrintRunConfig(saved);
}

AdapterConfig AdapterConfigOf(const RunConfig& config, const std::string& base_folder) {
  const LoraSpec spec = LoraSpecOf(config.lora);
  AdapterConfig adapter{.r = spec.r,
                        .alpha = spec.alpha,
                        .dropout = spec.dropout,
                        .rslora = spec.rslora,
                        .target_regex = spec.target_regex,
                        .target_modules = spec.target_modules,
                        .exclude_modules = spec.exclude_modules,
                        .rank_pattern = spec.rank_pattern,
                        .alpha_pattern = spec.alpha_pattern};
  // PEFT's own spelling of all-linear; it resolves it against the base model as we do.
  if (spec.target_regex.empty() && spec.target_modules.empty()) adapter.target_regex = "all-linear";
  std::error_code error;
  const auto absolute = std::filesystem::absolute(base_folder, error);
  adapter.base_model = error ? base_folder : absolute.lexically_normal().string();
  return adapter;
}

RunIdentity IdentityOf(const Program& train, const std::string& kernels) {
  RunIdentity identity;
  identity.program_hash = fmt::format("{:016x}", ProgramHash(train));
  const dnnl_version_t* const dnnl = dnnl_version();
  identity.environment = {{"threads", train.threads},
                          {"kernels", kernels},
                          {"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)}};
  return identity;
}

}  // namespace temper

#include "run/run_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/env.h"
#include "compile/run/compiled_run.h"
#include "config/run_options.h"
#include "data/template/known_templates.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_scratch.h"
#include "model/lora_names.h"

namespace temper {

namespace {

// What is there by this path is found from any folder; names in a cache, and of templates, stay names.
void MakeAbsolute(Env& env, std::string* path) {
  if (!path->empty() && (env.IsFile(*path) || env.IsFolder(*path))) *path = AbsolutePath(*path);
}

}  // namespace

std::string SavedConfig(const RunConfig& config) {
  RunConfig saved = config;
  saved.output.overwrite = false;
  saved.output.resume.reset();
  return PrintRunConfig(saved);
}

std::string RepeatableConfig(Env& env, RunConfig config) {
  for (std::string* path : {&config.model.model, &config.model.base, &config.model.adapter, &config.objective.reference,
                            &config.objective.teacher, &config.data.row_template, &config.machine.rates}) {
    MakeAbsolute(env, path);
  }
  // A file of tokens; a list of them stays as it is.
  if (!config.model.add_tokens.starts_with('[')) MakeAbsolute(env, &config.model.add_tokens);
  // The checkpoint has it, so the file may have gone.
  std::string& chat_template = config.data.chat_template;
  const auto& known = KnownTemplates();
  const bool is_name = std::any_of(known.begin(), known.end(), [&](const auto& t) { return t.name == chat_template; });
  if (!chat_template.empty() && !is_name) chat_template = AbsolutePath(chat_template);
  // Folders that the run makes.
  for (std::string* path : {&config.output.output_dir, &config.data.data_cache, &config.memory.disk}) {
    if (!path->empty()) *path = AbsolutePath(*path);
  }
  for (DataSources* sources : {&config.data.data, &config.data.eval_data}) {
    for (DataSource& source : *sources) MakeAbsolute(env, &source.path);
  }
  return SavedConfig(config);
}

LoraConfig SavedLora(LoraConfig lora, const TrainableSet& trains, const OpenedModel& model) {
  const Result<LoraConfig> named = NamedByPaths(model.model().modules(), lora);
  TEMPER_CHECK(named.ok()) << named.status().message();  // it has been resolved
  lora = *named;
  const std::vector<LoraModule>& modules = trains.adapters;
  const bool has_others = model.model().facts().keeps_other_tensors;
  // Names may end those of modules that the text model does not have.
  if (has_others && !trains.copies.empty()) lora.modules_to_save = trains.CopiedModules();
  const bool whole_paths = has_others && lora.target_regex().empty();
  if (whole_paths || lora.all_linear()) {
    std::set<std::string> names;
    for (const LoraModule& m : modules) {
      if (m.stored.empty()) names.insert(whole_paths ? m.path : ShortName(m.path));
    }
    lora.target_modules = std::vector<std::string>(names.begin(), names.end());
  }
  lora.judges_sequences = model.model().facts().classes > 0;
  lora.fan_in_fan_out =
      std::any_of(modules.begin(), modules.end(), [](const LoraModule& m) { return m.transposed && m.matrices == 0; });
  const ModelSource& source = model.source();
  if (source.hub_model) {
    lora.base_model = source.hub_model->repository;
    lora.base_revision = BaseName(source.model_folder);  // the commit: a branch moves
    return lora;
  }
  lora.base_model = AbsolutePath(source.gguf_file.empty() ? source.model_folder : source.gguf_file);
  return lora;
}

namespace {

// How many rows the loss processes at a time if it computes gradients of weights; 0: it does not.
int64_t LossChunkOf(const Program& train) {
  for (const Segment& segment : train.segments) {
    for (const Instruction& i : segment.instructions) {
      const bool sums = i.op == Op::kLinearCrossEntropy &&
                        (i.attributes.Flag("grad_w") || i.attributes.Flag("grad_w2") || i.attributes.Flag("grad_bias"));
      if (sums) return i.attributes.IntOr("chunk", kDefaultLossChunk);
    }
  }
  return 0;
}

}  // namespace

Result<RunIdentity> IdentityOf(const CompiledRun& run, const std::string& kernels, DeviceChoice device,
                               const Ranks& ranks) {
  const Program& train = run.train();
  RunIdentity identity;
  // The first rank's hashes. Ranks of one stage run the same Programs on other parts; ranks of another stage run other
  // Programs, which follow from the same graphs and mesh.
  for (const auto& [name, hash] : run.Hashes()) {
    TEMPER_ASSIGN_OR_RETURN(std::string digits, ranks.FromFirst(fmt::format("{:016x}", hash)));
    if (name == train.name) {
      identity.program_hash = std::move(digits);
    } else {
      identity.other_programs[name] = std::move(digits);
    }
  }
  identity.environment = {{"threads", train.threads}, {"kernels", kernels}, {"temper", TEMPER_VERSION}};
  if (!ranks.alone()) identity.environment["mesh"] = run.mesh.mesh.ToString();
  // The machine's limits, which are not in the hash, may cut the loss into chunks, which changes rounding on a GPU. In
  // a pipeline the last stage has the loss.
  if (device == DeviceChoice::kGpu) {
    auto chunk = static_cast<double>(LossChunkOf(train));
    if (!ranks.alone()) TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceMax(std::span(&chunk, 1)));
    if (chunk > 0) identity.environment["loss_chunk"] = static_cast<int64_t>(chunk);
  }
  for (const Decision& d : run.decisions) identity.decisions[d.what] = d.chosen;
  return identity;
}

}  // namespace temper

#include "compile/run/compiled_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>

#include "compile/mesh/sharding_rules.h"
#include "compile/pipeline/balance.h"
#include "compile/run/mesh_options.h"
#include "compile/run/saved_slices.h"
#include "model/adapted_model.h"

namespace temper {
namespace {

std::optional<Tier> TierOf(TierChoice choice) {
  switch (choice) {
    case TierChoice::kAuto:
      return std::nullopt;
    case TierChoice::kDevice:
      return Tier::kDevice;
    case TierChoice::kHost:
      return Tier::kHost;
    case TierChoice::kDisk:
      return Tier::kDisk;
  }
  return std::nullopt;
}

}  // namespace

MemorySpec MemorySpecOf(const RunConfig& config) {
  const RunConfig::Memory& m = config.memory;
  MemorySpec spec = {.policy = m.policy,
                     .device = m.device.value_or(kNoLimit),
                     .host = m.host.value_or(kNoLimit),
                     .disk = !m.disk.empty(),
                     .weights = TierOf(m.weights),
                     .gradients = TierOf(m.gradients),
                     .optimizer = TierOf(m.optimizer),
                     .activations = TierOf(m.activations),
                     .matrices = m.bf16_weights};
  if (config.machine.device == DeviceChoice::kGpu) {
    spec.rates = TypicalGpu();
    spec.links.host_to_device = spec.links.device_to_host = kTypicalGpuLink;
    spec.links.copies = {};  // separate copy engines do them
    spec.loss_chunks_keep_bits = false;
    spec.shared = false;
  } else {
    // Ranks copy through memory, as values of the host do; between hosts 10 Gbit/s.
    spec.ranks = {.inside = {8e9, {5e-6}}, .between = {1.25e9, {50e-6}}, .ranks_per_host = kOneHost};
    spec.links.copies.slows *= 2.0 / static_cast<double>(config.machine.threads.value_or(2));  // one of `threads` cores
  }
  return spec;
}

UpdateSpec UpdateSpecOf(const RunConfig::Optimizer& o) {
  return {
      .rule = o.rule, .settings = o.settings.Of(*o.rule), .weight_decay = o.weight_decay, .max_norm = o.max_grad_norm};
}

namespace {

StepSpec StepSpecOf(const RunConfig& config) {
  return {.micro_batches = static_cast<int>(config.batch.gradient_accumulation_steps),
          .recompute = config.machine.recompute,
          .recompute_blocks = static_cast<int>(config.machine.recompute_blocks.value_or(kAllBlocks)),
          .update = UpdateSpecOf(config.optimizer),
          // One thread enqueues a device's kernels; scratch per thread would be wasted.
          .threads = config.machine.device == DeviceChoice::kGpu ? 1 : static_cast<int>(*config.machine.threads),
          .memory = MemorySpecOf(config),
          .joins_adapters = config.machine.device != DeviceChoice::kGpu};
}

}  // namespace

DType ComputeDType(const RunConfig& config) {
  TEMPER_CHECK(config.model.dtype != ComputeType::kAuto) << "dtype is not resolved";
  return config.model.dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

Flops CompiledRun::ModelFlops(int64_t tokens, Flops attention) const {
  // One multiply-add forward, one for the gradient of the input, and one for the gradient of a trained weight.
  const double per_token = (targets.empty() ? 6.0 : 4.0) * static_cast<double>(work.weights);
  return Flops{per_token * static_cast<double>(tokens)} + attention;
}

Flops CompiledRun::AttentionFlops(int64_t tokens) const {
  Flops flops;
  // Each forward product has two in the backward.
  for (const auto& [window, forward] : work.flops_per_pair) flops.v += 3 * forward * AttendedPairs(tokens, window);
  return flops;
}

std::string CompiledRun::MemoryText() const {
  std::string text;
  if (!memory.text.empty()) {
    text = limited_because.empty() ? memory.ToString() : limited_because + ": " + memory.ToString();
  }
  if (packed) {
    if (!text.empty()) text += "; ";
    if (targets.empty()) {
      text += fmt::format("weights are packed for products once per step ({})", ToString(*packed));
    } else {
      text += "frozen weights are packed for products";
      if (packed->v > 0) text += fmt::format(", a second time for the backward ({})", ToString(*packed));
    }
  }
  return text;
}

namespace {

ModelWork WorkOf(const Graph& forward) {
  ModelWork work;
  for (const Node& node : forward.nodes()) {
    const OpRule& rule = RuleOf(node.op);
    if (rule.model_work != nullptr) rule.model_work(TypesOf(forward, node.inputs), node.attributes, &work);
  }
  return work;
}

Result<AdaptedModel> AdaptedModelOf(const Model& model, const RunConfig& config) {
  AdaptedModel adapted{.model = model};
  adapted.trains_all_weights = config.model.method != TrainMethod::kLora;
  if (adapted.trains_all_weights) return adapted;
  TEMPER_ASSIGN_OR_RETURN(adapted.adapters, ResolveLora(model.modules(), config.lora));
  adapted.dropout = config.lora.dropout;
  adapted.base = {.modules = FormatOf(config.model.base_dtype),
                  .embedding = FormatOf(config.model.embedding_dtype),
                  .dequantised_first = config.machine.device == DeviceChoice::kGpu};
  return adapted;
}

Result<std::string> NoteOnMesh(const Graph& forward, const MeshSpec& mesh) {
  std::vector<std::string> notes;
  if (std::string copies = NoteOn(mesh.mesh); !copies.empty()) notes.push_back(std::move(copies));
  if (!mesh.rules.empty() && mesh.mesh.ranks() > 1) {
    TEMPER_ASSIGN_OR_RETURN(const ShardedWeights sharded, ShardWeights(forward, mesh.mesh, mesh.rules, mesh.residual));
    for (std::string& idle : IdleRules(mesh.rules, sharded)) notes.push_back(std::move(idle));
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

// "model.layers.*.mlp.up_proj.weight" of block 7's.
std::string NameInAnyBlock(std::string name, int block) {
  const std::string number = fmt::format(".{}.", block);
  const size_t at = name.find(number);
  return at == std::string::npos ? name : name.replace(at, number.size(), ".*.");
}

// Without rules of the user, blocks of one kind are split alike: one of each is looked at.
Status CheckSaves(const Graph& forward, const CompiledRun& run) {
  Mesh stage = run.mesh.mesh;  // of which each tensor has one, or two the same parts
  stage.set_size(Axis::kPp, 1);
  ShardedWeights sharded;
  if (stage.ranks() > 1) {
    TEMPER_ASSIGN_OR_RETURN(sharded, ShardWeights(forward, stage, run.mesh.rules, run.mesh.residual));
  }
  if (!run.mesh.rules.empty()) return CheckSavedSlices(run.stored, sharded.shardings, stage);
  const std::set<std::string_view> distinct(run.distinct.begin(), run.distinct.end());
  std::vector<StoredWeight> one_of_each;
  for (const StoredWeight& w : run.stored) {
    if (distinct.contains(w.name)) one_of_each.push_back(w);
  }
  return CheckSavedSlices(one_of_each, sharded.shardings, stage);
}

}  // namespace

Result<CompiledRun> CompileRun(const Model& model, const RunConfig& config, int ranks, int rank,
                               const KeptDecisions& kept, const MemorySpec* memory) {
  const int64_t row = *config.data.max_seq_len;
  CompiledRun run;
  TEMPER_ASSIGN_OR_RETURN(run.mesh, MeshOf(config, ranks, rank, model.facts().heads));
  TEMPER_ASSIGN_OR_RETURN(AdaptedModel adapted, AdaptedModelOf(model, config));
  const auto spec_of = [&](int64_t rows, bool training) {
    return ForwardSpec{.dtype = ComputeDType(config),
                       .tokens = rows * run.data_ranks() * row,
                       .row = row,
                       .training = training,
                       .neftune_noise_alpha = config.regularisation.neftune_noise_alpha,
                       .objective_settings = {.weighted = config.data.weighted,
                                              .label_smoothing = config.regularisation.label_smoothing_factor}};
  };
  const int64_t rows = config.batch.per_device_train_batch_size;
  run.parameters = NumParameters(model);
  Graph plain = model.Forward(spec_of(rows, /*training=*/true));
  run.work = WorkOf(plain);
  const Graph forward = adapted.Adapted(std::move(plain), /*training=*/true);
  const Graph eval =
      adapted.Forward(spec_of(config.batch.per_device_eval_batch_size.value_or(rows), /*training=*/false));
  run.targets = std::move(adapted.adapters);
  run.trainable_parameters = run.targets.empty() ? run.parameters : 0;
  for (const LoraModule& t : run.targets) run.trainable_parameters += t.r * (t.in + t.out);
  const std::vector<int> blocks = BlocksOfFirstUse(forward);
  std::set<std::pair<int, std::string>> kinds;  // values of them
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& value = forward.value(id);
    if (value.trainable) run.trained.push_back(value.name);
    if (value.role != Role::kWeight && value.role != Role::kAdapter) continue;
    const int block = blocks[static_cast<size_t>(id)];
    const int kind = block < 0 ? block : model.facts().kinds[static_cast<size_t>(block)];
    // Of the first block of its kind that has it: adapters may be on later ones alone.
    if (kinds.emplace(kind, NameInAnyBlock(value.name, block)).second) run.distinct.push_back(value.name);
  }
  run.stored = run.targets.empty() ? model.StoredWeights() : LoraWeights(run.targets);
  if (run.mesh.mesh.size(Axis::kPp) > 1) {
    PipelineSpec& pipeline = run.mesh.pipeline;
    const int chunks = run.mesh.mesh.size(Axis::kPp) * pipeline.chunks_per_stage;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<int> chunk_of,
                            ChunkOfBlocks(CostsOfBlocks(forward), chunks, pipeline.layers));
    pipeline.layers.assign(static_cast<size_t>(chunks), 0);
    for (const int chunk : chunk_of) ++pipeline.layers[static_cast<size_t>(chunk)];
  }
  StepSpec spec = StepSpecOf(config);
  spec.mesh = run.mesh;
  spec.mesh.decisions.kept = kept;
  if (memory != nullptr) spec.memory = *memory;
  TEMPER_ASSIGN_OR_RETURN(run.mesh_note, NoteOnMesh(forward, run.mesh));
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled, CompileGraphs(TrainAndEval(forward, eval), spec));
  run.programs = std::move(compiled.programs);
  run.decisions = std::move(compiled.decisions);
  run.memory = std::move(compiled.memory);
  TEMPER_RETURN_IF_ERROR(CheckSaves(forward, run));
  if (!run.memory.text.empty()) run.rates = spec.memory.rates_source;
  if (run.mesh.mesh.size(Axis::kPp) > 1) {
    TEMPER_ASSIGN_OR_RETURN(run.pipeline,
                            PipelineFactsOf(run.mesh, spec.micro_batches, run.memory.choice, run.targets.empty()));
  }
  return run;
}

namespace {

Bytes NeedOf(const CompiledRun& run) {
  return run.train().arena_bytes + run.train().host.bytes;
}

// `asked` of `rank`; if there are `limits`, which follow from `share`, compiled again within them.
Result<CompiledRun> Within(std::optional<MemorySpec> limits, const ProcessMemory& share, CompiledRun asked,
                           const Model& model, const RunConfig& config, int ranks, int rank,
                           const KeptDecisions& kept = {}) {
  if (!limits) return asked;
  limits->disk = true;  // in the output folder, unless another one is given
  const std::string because = DescribeLimits(asked.train(), share);
  auto within = CompileRun(model, config, ranks, rank, kept, &*limits);
  if (!within.ok()) return within.status().WithContext(because);
  within->limited_because = because;
  within->hash_without_limits = ProgramHash(asked.train());
  return within;
}

// Whether packing makes nothing else worse. Both fit.
bool ChoosesAlike(const CompiledRun& plain, const CompiledRun& packed) {
  return packed.memory.choice == plain.memory.choice;
}

// `packed`, which chooses as `plain` does; `plain` if that has nothing to pack.
CompiledRun PreferPacked(CompiledRun plain, CompiledRun packed) {
  const uint64_t hash = ProgramHash(plain.train());
  if (ProgramHash(packed.train()) == hash) return plain;
  for (const Buffer& b : packed.train().buffers) {
    if (!b.type.packed()) continue;
    if (!packed.packed) packed.packed = Bytes{};
    if (b.role == Role::kCache || b.type.layout == ElementLayout::kRowPairs) *packed.packed += b.type.bytes();
  }
  packed.hash_without_limits = hash;
  packed.rates = std::move(plain.rates);
  return packed;
}

// `asked`, with operands packed.
MemorySpec PackedSpec(MemorySpec asked, PackedOperands packing) {
  asked.policy = TierPolicy::kDevice;
  asked.packing = packing;
  return asked;
}

// `asked` without limits, if that leaves nothing to choose.
std::optional<MemorySpec> Unlimited(MemorySpec asked) {
  asked.device = asked.host = kNoLimit;
  return asked.IsOpen() ? std::optional(std::move(asked)) : std::nullopt;
}

// What to try to pack on such a machine, most first.
std::vector<PackedOperands> PackingsOf(const RankMemory& available, const RunConfig& config, const MemorySpec& asked) {
  const bool packs = available.packs && config.machine.device != DeviceChoice::kGpu &&
                     ComputeDType(config) == DType::kBF16 && Unlimited(asked);
  if (!packs) return {};
  return {PackedOperands::kAll, PackedOperands::kInMicroBatch};
}

}  // namespace

Result<CompiledRun> CompileWithin(const RankMemory& available, const Model& model, const RunConfig& config, int ranks,
                                  int rank, const KeptDecisions& kept, const AskRates& ask) {
  const bool on_gpu = config.machine.device == DeviceChoice::kGpu;
  MemorySpec asked = MemorySpecOf(config);
  ProcessMemory share{.host = available.each, .gpu = available.gpu};
  // Limits of the machine for `run`, compiled with `spec`. Decides by the need of the first rank of each stage, so that
  // all ranks of a stage decide alike: shards may differ by a row.
  using Limits = std::optional<MemorySpec>;
  const auto limits_of = [&](const CompiledRun& run, const MemorySpec& spec,
                             const MemorySpec& given) -> Result<Limits> {
    if (on_gpu && !available.gpu) return Limits();
    const int stages = run.mesh.mesh.size(Axis::kPp), per_stage = ranks / stages, stage = rank / per_stage;
    std::optional<CompiledRun> own_first;
    std::vector<Bytes> needs;
    for (int first = 0; first < ranks; first += per_stage) {
      if (on_gpu && first / per_stage != stage) continue;  // each rank has its own GPU
      std::optional<CompiledRun> other;
      if (first != rank) {
        TEMPER_ASSIGN_OR_RETURN(other, CompileRun(model, config, ranks, first, kept, &spec));
      }
      needs.push_back(NeedOf(other ? *other : run));
      if (first / per_stage == stage) own_first = std::move(other);
    }
    share.stages = stages;
    if (!on_gpu) share.host.bytes = SharesOfStages(available, needs, ranks)[static_cast<size_t>(stage)];
    return LimitsOfMachine((own_first ? *own_first : run).train(), given, share);
  };
  // A run that fits as it is depends on no rates, which take a second to measure.
  CompiledRun run;
  std::optional<MemorySpec> limits;
  bool as_it_is = false;
  const auto needs_rates = [&]() -> Result<bool> {
    const std::optional<MemorySpec> unlimited = Unlimited(asked);
    if (!unlimited) return true;
    TEMPER_ASSIGN_OR_RETURN(run, CompileRun(model, config, ranks, rank, kept, &*unlimited));
    as_it_is = run.train().arena_bytes <= asked.device;
    const int per_stage = ranks / run.mesh.mesh.size(Axis::kPp), first = rank / per_stage * per_stage;
    if (as_it_is && asked.IsLimited() && first != rank) {  // the first rank of a stage chooses what all recompute
      TEMPER_ASSIGN_OR_RETURN(const CompiledRun of_first, CompileRun(model, config, ranks, first, kept, &*unlimited));
      as_it_is = of_first.train().arena_bytes <= asked.device;
    }
    if (!as_it_is) return true;
    TEMPER_ASSIGN_OR_RETURN(limits, limits_of(run, *unlimited, asked));
    return limits.has_value();
  };
  const Result<bool> needed = needs_rates();
  std::optional<RunRates> rates;
  if (ask) {
    TEMPER_ASSIGN_OR_RETURN(rates, ask(needed));
  }
  TEMPER_RETURN_IF_ERROR(needed.status());
  if (rates) UseRates(*rates, &asked);
  if (rates && limits) UseRates(*rates, &*limits);
  if (!as_it_is) {
    TEMPER_ASSIGN_OR_RETURN(run, CompileRun(model, config, ranks, rank, kept, &asked));
    TEMPER_ASSIGN_OR_RETURN(limits, limits_of(run, asked, asked));
  }
  if (!on_gpu && !limits) run.room = CheckRoom(run.train(), asked, share);
  for (const PackedOperands packing : PackingsOf(available, config, asked)) {
    if (limits) break;
    const MemorySpec packs = PackedSpec(asked, packing);
    Result<CompiledRun> packed = CompileRun(model, config, ranks, rank, kept, &packs);
    // The machine's memory limits it, whatever the options say.
    const auto missing = packed.ok() ? limits_of(*packed, packs, MemorySpec()) : packed.status();
    if (!missing.ok() && missing.status().code() != StatusCode::kOutOfMemory) return missing.status();
    if (missing.ok() && !*missing && ChoosesAlike(run, *packed)) {
      run = PreferPacked(std::move(run), *std::move(packed));
      break;
    }
  }
  TEMPER_ASSIGN_OR_RETURN(run, Within(std::move(limits), share, std::move(run), model, config, ranks, rank, kept));
  if (run.memory.choice.casts && asked.matrices == TrainedMatrices::kCast) {
    const MemorySpec stored;
    TEMPER_ASSIGN_OR_RETURN(const CompiledRun plain, CompileRun(model, config, ranks, rank, kept, &stored));
    run.hash_without_limits = ProgramHash(plain.train());
  }
  return run;
}

Result<std::vector<CompiledRun>> CompileStages(int ranks, const std::function<Result<CompiledRun>(int rank)>& compile) {
  std::vector<CompiledRun> runs;
  TEMPER_ASSIGN_OR_RETURN(runs.emplace_back(), compile(0));
  const int stages = runs[0].mesh.mesh.size(Axis::kPp);
  for (int stage = 1; stage < stages; ++stage) {
    TEMPER_ASSIGN_OR_RETURN(runs.emplace_back(), compile(stage * (ranks / stages)));
  }
  return runs;
}

Result<std::vector<CompiledRun>> CompileStagesWithin(const RankMemory& available, const Model& model,
                                                     const RunConfig& config, int ranks, const MemorySpec& asked) {
  const auto compile = [&](int rank) { return CompileRun(model, config, ranks, rank, {}, &asked); };
  TEMPER_ASSIGN_OR_RETURN(std::vector<CompiledRun> runs, CompileStages(ranks, compile));
  if (config.machine.device == DeviceChoice::kGpu) return runs;  // its memory is unknown
  const int stages = static_cast<int>(runs.size());
  const auto shares_of = [&](const std::vector<CompiledRun>& all) {
    std::vector<Bytes> needs;
    needs.reserve(all.size());
    for (const CompiledRun& run : all) needs.push_back(NeedOf(run));
    std::vector<ProcessMemory> shares(all.size(), {.host = available.each, .stages = stages});
    const std::vector<Bytes> bytes = SharesOfStages(available, needs, ranks);
    for (size_t stage = 0; stage < all.size(); ++stage) shares[stage].host.bytes = bytes[stage];
    return shares;
  };
  const std::vector<ProcessMemory> shares = shares_of(runs);
  std::vector<std::optional<MemorySpec>> limits;
  for (size_t stage = 0; stage < runs.size(); ++stage) {
    limits.push_back(LimitsOfMachine(runs[stage].train(), asked, shares[stage]));
  }
  std::vector<bool> settled(runs.size());
  for (const PackedOperands packing : PackingsOf(available, config, asked)) {
    const MemorySpec packs = PackedSpec(asked, packing);
    auto packed = CompileStages(ranks, [&](int rank) { return CompileRun(model, config, ranks, rank, {}, &packs); });
    if (!packed.ok() && packed.status().code() == StatusCode::kOutOfMemory) continue;
    TEMPER_RETURN_IF_ERROR(packed.status());
    const std::vector<ProcessMemory> packed_shares = shares_of(*packed);
    for (size_t stage = 0; stage < runs.size(); ++stage) {
      CompiledRun& of_stage = (*packed)[stage];
      if (settled[stage] || limits[stage] || !ChoosesAlike(runs[stage], of_stage) ||
          LimitsOfMachine(of_stage.train(), MemorySpec(), packed_shares[stage])) {
        continue;
      }
      runs[stage] = PreferPacked(std::move(runs[stage]), std::move(of_stage));
      settled[stage] = true;
    }
    if (std::find(settled.begin(), settled.end(), false) == settled.end()) break;
  }
  for (size_t stage = 0; stage < runs.size(); ++stage) {
    if (!limits[stage]) runs[stage].room = CheckRoom(runs[stage].train(), asked, shares[stage]);
    if (settled[stage]) continue;
    TEMPER_ASSIGN_OR_RETURN(runs[stage], Within(std::move(limits[stage]), shares[stage], std::move(runs[stage]), model,
                                                config, ranks, static_cast<int>(stage) * (ranks / stages)));
  }
  return runs;
}

Result<std::vector<std::string>> IdleSettings(const Model& model, const RunConfig& config) {
  const LoraConfig& lora = config.lora;
  const bool selective = !lora.rank_pattern.empty() || !lora.alpha_pattern.empty() || !lora.exclude_names().empty() ||
                         !lora.exclude_regex().empty() || !lora.layers_to_transform.empty();
  if (config.model.method != TrainMethod::kLora || !selective) return std::vector<std::string>();
  return IdleLoraSettings(model.modules(), lora);
}

Result<Graph> AdaptedForward(const Model& model, const RunConfig& config) {
  TEMPER_ASSIGN_OR_RETURN(const AdaptedModel adapted, AdaptedModelOf(model, config));
  const int64_t row = *config.data.max_seq_len;
  return adapted.Forward({.dtype = ComputeDType(config), .tokens = row, .row = row, .training = true});
}

}  // namespace temper

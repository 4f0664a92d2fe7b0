#include "compile/run/run_frame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "compile/mesh/sharding_rules.h"
#include "compile/pipeline/balance.h"
#include "compile/run/mesh_options.h"
#include "compile/run/saved_slices.h"
#include "compile/run/update_groups.h"
#include "model/adapted_model.h"
#include "model/teacher.h"
#include "program/program_of_rows.h"

namespace temper {
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

ModelWork WorkOf(const Graph& forward) {
  ModelWork work;
  for (const Node& node : forward.nodes()) {
    const OpRule& rule = RuleOf(node.op);
    if (rule.model_work != nullptr) rule.model_work(TypesOf(forward, node.inputs), node.attributes, &work);
  }
  return work;
}

// With that of its head, which is a part of the student's loss.
ModelWork WorkOf(const TeacherPass& teacher) {
  ModelWork work = WorkOf(teacher.graph());
  work.weights += teacher.graph().value(teacher.operands().w_VD).type.shape.elements();
  return work;
}

Result<AdaptedModel> AdaptedModelOf(const Model& model, const RunConfig& config) {
  AdaptedModel adapted{.model = model};
  adapted.trains.all_weights = config.model.method != TrainMethod::kLora;
  if (adapted.trains.all_weights) return adapted;
  TEMPER_ASSIGN_OR_RETURN(adapted.trains, ResolveTrainable(model, config.lora));
  adapted.dropout = config.lora.dropout;
  adapted.base = BaseFormatOf(model.facts(), FormatOf(config.model.base_dtype), FormatOf(config.model.embedding_dtype),
                              ComputeDType(config), config.machine.device == DeviceChoice::kGpu);
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

Result<double> RouterAuxLossCoef(const ModelFacts& facts, const RunConfig& config) {
  const double coef = config.regularisation.router_aux_loss_coef.value_or(facts.router_aux_loss_coef);
  if (coef == 0 || (facts.experts > 0 && !facts.balanced_by_bias)) return coef;
  if (facts.balanced_by_bias) {
    return InvalidArgument(
        fmt::format("router_aux_loss_coef is {}, but {} balances its experts by a bias that files have, not by a loss: "
                    "remove it",
                    coef, facts.architecture));
  }
  return InvalidArgument(
      fmt::format("router_aux_loss_coef is {}, but {} has no experts that a loss could balance: remove it", coef,
                  facts.architecture));
}

namespace {

// What a run with a teacher cannot have yet.
Status CheckTeacher(const Model& model, const RunConfig& config, const MeshSpec& mesh) {
  if (!config.objective.rule->distills) return OkStatus();
  TEMPER_CHECK(model.teacher() != nullptr) << "a run that distills needs a teacher";
  const std::string_view task = config.objective.rule->name;
  if (config.machine.device == DeviceChoice::kGpu) {
    return Unsupported(fmt::format("task: {} has no kernels for GPUs yet: set device: cpu", task));
  }
  if (mesh.mesh.size(Axis::kPp) > 1) {
    return Unsupported(
        fmt::format("task: {} cuts no teacher into stages of a pipeline yet: set mesh.pp to 1, and split models over "
                    "mesh.fsdp",
                    task));
  }
  return OkStatus();
}

// Rows of tables that are trained beside an adapter.
Status CheckRowsOfTables(const RunConfig& config, const MeshSpec& mesh) {
  if (config.lora.trainable_token_indices.empty() || config.model.method != TrainMethod::kLora) return OkStatus();
  if (mesh.mesh.size(Axis::kTp) == 1) return OkStatus();
  return Unsupported(
      "lora.trainable_token_indices: tensor ranks do not share the rows of a table yet: set mesh.tp to 1, and split "
      "the "
      "model over mesh.fsdp");
}

// A number for each kind of block, of the model and then of its teacher.
int KindOfBlock(const Model& model, int block) {
  const std::vector<int>& own = model.facts().kinds;
  const int blocks = static_cast<int>(own.size());
  if (block < 0) return block;
  if (block < blocks) return own[static_cast<size_t>(block)];
  return blocks + model.teacher()->model->facts().kinds[static_cast<size_t>(block - blocks)];
}

}  // namespace

Result<RunFrame> RunFrame::Of(const Model& model, const RunConfig& config, int ranks, const KeptDecisions& kept,
                              Graphs graphs) {
  const int64_t row = *config.data.max_seq_len;
  RunFrame frame{.dtype = ComputeDType(config), .on_gpu = config.machine.device == DeviceChoice::kGpu};
  CompiledRun& run = frame.facts;
  TEMPER_ASSIGN_OR_RETURN(run.mesh, MeshOf(config, ranks, /*rank=*/0, model.facts().heads));
  TEMPER_ASSIGN_OR_RETURN(AdaptedModel adapted, AdaptedModelOf(model, config));
  // Counts run from block to block, and a pipeline gives values to the next stage alone: one without experts would end
  // such a run, for a report.
  const bool in_stages = run.mesh.mesh.size(Axis::kPp) > 1;
  run.counts_experts = model.facts().experts > 0 && (!in_stages || model.facts().experts_in_all_blocks);
  const ObjectiveRule& objective = *config.objective.rule;
  const int64_t rows = config.batch.per_device_train_batch_size;
  const int blocks_of_student = static_cast<int>(model.facts().kinds.size());
  TEMPER_RETURN_IF_ERROR(CheckTeacher(model, config, run.mesh));
  TEMPER_RETURN_IF_ERROR(CheckRowsOfTables(config, run.mesh));
  if (objective.distills) run.teacher_parameters = NumParameters(*model.teacher()->model);
  run.parameters = NumParameters(model);
  run.active_parameters = NumActiveParameters(model);
  TEMPER_ASSIGN_OR_RETURN(run.router_aux_loss_coef, RouterAuxLossCoef(model.facts(), config));
  const auto add = [&](const ObjectiveGraph& graph, int64_t length) {
    const bool trains = graph.kind == ProgramKind::kTrain;
    if (graphs == Graphs::kTrainingAlone && !trains) return;
    const int64_t rows_of_graph = trains ? rows : config.batch.per_device_eval_batch_size.value_or(rows);
    // The noise of shorter rows is no stronger.
    const double as_long = std::sqrt(static_cast<double>(length) / static_cast<double>(row));
    ForwardSpec spec = {.dtype = frame.dtype,
                        .tokens = rows_of_graph * run.data_ranks() * length,
                        .row = length,
                        .training = trains,
                        .neftune_noise_alpha = config.regularisation.neftune_noise_alpha * as_long,
                        .counts_experts = trains && run.counts_experts,
                        .balances_experts = trains && run.router_aux_loss_coef > 0,
                        .objective = &objective,
                        .graph = graph.kind,
                        .objective_settings = {.weighted = config.data.weighted,
                                               .label_smoothing = config.regularisation.label_smoothing_factor,
                                               .tasks = config.objective.tasks}};
    std::optional<TeacherPass> teacher;
    if (objective.distills) {
      teacher.emplace(*model.teacher(), spec);
      spec.objective_settings.teacher = teacher->head();
    }
    Graph plain = model.Forward(spec);
    if (trains && length == row) {
      run.work = WorkOf(plain);
      if (teacher) run.teacher_work = WorkOf(*teacher);
    }
    Graph with_adapters = adapted.Adapted(std::move(plain), trains);
    if (length < row) DrawAsInLongerRows(length, row, &with_adapters);
    frame.graphs.push_back(teacher ? teacher->Joined(with_adapters, blocks_of_student) : std::move(with_adapters));
    frame.names.push_back(length == row ? ProgramName(graph.kind) : ProgramOfRows(graph.kind, length));
    frame.train.push_back(trains);
  };
  for (const ObjectiveGraph& graph : objective.graphs) add(graph, row);
  frame.longest = frame.graphs.size();
  if (graphs == Graphs::kAllLengths) run.lengths = RowLengthsOf(config, run.mesh.mesh);
  for (const int64_t length : run.lengths.train) add(objective.graph(ProgramKind::kTrain), length);
  for (const int64_t length : run.lengths.eval) add(objective.graph(ProgramKind::kEval), length);
  frame.spec = StepSpecOf(config);
  for (size_t k = 0; k < frame.graphs.size(); ++k) {
    if (frame.train[k]) AssignUpdateGroups(config.optimizer, &frame.graphs[k], &frame.spec.update);
  }
  const Graph& forward = frame.forward();
  run.trains = std::move(adapted.trains);
  run.trainable_parameters = run.trains.Parameters(model);
  run.trained_in_products = run.trains.CopiesInProducts();
  const std::vector<int> blocks = BlocksOfFirstUse(forward);
  std::set<std::pair<int, std::string>> kinds;  // values of them
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& value = forward.value(id);
    const bool of_teacher = value.name.starts_with(kTeacherPrefix);
    // A number that no method trains.
    const bool stays = run.trains.all_weights && value.role == Role::kWeight && !of_teacher;
    if (value.trainable || stays) run.trained.push_back(value.name);
    if (value.role != Role::kWeight && value.role != Role::kAdapter) continue;
    const int block = blocks[static_cast<size_t>(id)];
    const int kind = KindOfBlock(model, block);
    // Of the first block of its kind that has it: adapters may be on later ones alone.
    const int number = of_teacher && block >= 0 ? block - blocks_of_student : block;  // in names
    if (kinds.emplace(kind, NameInAnyBlock(value.name, number)).second) run.distinct.push_back(value.name);
  }
  run.stored = run.trains.Stored(model);
  if (run.mesh.mesh.size(Axis::kPp) > 1) {
    PipelineSpec& pipeline = run.mesh.pipeline;
    const int chunks = run.mesh.mesh.size(Axis::kPp) * pipeline.chunks_per_stage;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<int> chunk_of,
                            ChunkOfBlocks(CostsOfBlocks(forward), chunks, pipeline.layers));
    pipeline.layers.assign(static_cast<size_t>(chunks), 0);
    for (const int chunk : chunk_of) ++pipeline.layers[static_cast<size_t>(chunk)];
  }
  frame.spec.mesh = run.mesh;
  frame.spec.mesh.decisions.kept = kept;
  TEMPER_ASSIGN_OR_RETURN(run.mesh_note, NoteOnMesh(forward, run.mesh));
  TEMPER_RETURN_IF_ERROR(CheckSaves(forward, run));
  return frame;
}

std::vector<RunGraph> RunFrame::RunGraphs() const {
  std::vector<RunGraph> all;
  for (size_t k = 0; k < graphs.size(); ++k) {
    all.push_back({.name = names[k], .forward = &graphs[k], .trains = train[k], .shorter = k >= longest});
  }
  return all;
}

Result<PreparedStep> RunFrame::Prepare(int rank) const {
  StepSpec of_rank = spec;
  of_rank.mesh.rank = rank;
  return PreparedStep::Of(RunGraphs(), of_rank);
}

Result<CompiledRun> RunFrame::Finished(int rank, CompiledPrograms compiled, const MemorySpec& memory) const {
  CompiledRun run = facts;
  run.mesh.rank = rank;
  run.programs = std::move(compiled.programs);
  run.decisions = std::move(compiled.decisions);
  run.memory = std::move(compiled.memory);
  if (!run.memory.text.empty()) run.rates = memory.rates_source;
  if (run.mesh.mesh.size(Axis::kPp) > 1) {
    TEMPER_ASSIGN_OR_RETURN(run.pipeline,
                            PipelineFactsOf(run.mesh, spec.micro_batches, run.memory.choice, run.trains.all_weights));
  }
  return run;
}

Result<Graph> AdaptedForward(const Model& model, const RunConfig& config) {
  TEMPER_ASSIGN_OR_RETURN(const AdaptedModel adapted, AdaptedModelOf(model, config));
  const int64_t row = *config.data.max_seq_len;
  return adapted.Forward({.dtype = ComputeDType(config), .tokens = row, .row = row, .training = true});
}

}  // namespace temper

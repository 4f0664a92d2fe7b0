#include "run/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/quantity.h"
#include "compile/run/compiled_run.h"
#include "config/run_options.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr char kMark[] = "<!-- Written by Temper. A README.md without this line is kept. -->";

constexpr Bytes kMostOfCard = MiB(1);

// In a table: no text ends the cell or the row.
std::string Cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// A name or a path as a YAML text.
std::string YamlText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

constexpr char kResults[] = "## Results\n", kUse[] = "## Use\n", kChat[] = "temper chat FOLDER\n",
               kScore[] = "temper score FOLDER --data FILE\n";
constexpr char kAdapterTitle[] = "# LoRA adapter of ", kAdapterText[] = "This LoRA adapter of ";

// `base`: as YAML. `judges`: the model has a head of classes or of a reward.
std::string Front(std::string_view base, const char* library, std::string_view method, bool judges) {
  return fmt::format("---\nbase_model: {}\nlibrary_name: {}\npipeline_tag: {}\ntags:\n- temper\n- {}\n---\n\n{}\n\n",
                     base, library, judges ? "text-classification" : "text-generation", method, kMark);
}

std::string Commands(bool chats, bool judges) {
  if (judges) return fmt::format("{}\n```sh\n{}```\n\n", kUse, kScore);
  return fmt::format("{}\n```sh\n{}temper generate FOLDER --prompt \"...\"\n```\n\n", kUse, chats ? kChat : "");
}

constexpr char kUseJudge[] =
    "```python\nfrom transformers import AutoModelForSequenceClassification, AutoTokenizer\n\n"
    "model = AutoModelForSequenceClassification.from_pretrained(\"FOLDER\")\n"
    "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n";
constexpr char kUseJudgingAdapter[] =
    "```python\nfrom peft import PeftModel\n"
    "from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer\n\n"
    "config = AutoConfig.from_pretrained(\"FOLDER\")\n"
    "model = AutoModelForSequenceClassification.from_pretrained(\"BASE\", config=config)\n"
    "model = PeftModel.from_pretrained(model, \"FOLDER\")\n"
    "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n";

constexpr char kUseModel[] =
    "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
    "model = AutoModelForCausalLM.from_pretrained(\"FOLDER\")\n"
    "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n";
constexpr char kUseAdapter[] =
    "```python\nfrom peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer{}\n\n"
    "model = AutoPeftModelForCausalLM.from_pretrained(\"FOLDER\")\n"
    "{}tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n";
constexpr char kUseGenerationConfig[] =
    "# also stops where the chat template ends an answer\n"
    "model.generation_config = GenerationConfig.from_pretrained(\"FOLDER\")\n";

// The card of an adapter that was merged into its base, from the adapter's; empty if that is not as ModelCard writes
// it.
std::string MergedCard(std::string_view adapter) {
  const auto between = [&](std::string_view begin, std::string_view end) {
    const size_t at = adapter.find(begin);
    const size_t from = at == adapter.npos ? adapter.size() : at + begin.size();
    return adapter.substr(from, std::min(adapter.find(end, from), adapter.size()) - from);
  };
  const std::string_view name = between(kAdapterTitle, "\n"), text = between(kAdapterText, kResults);
  if (name.empty() || text.empty()) return "";
  const bool judges = adapter.find(kScore) != adapter.npos;
  return fmt::format("{}# {} with a LoRA adapter, merged\n\nThe merged LoRA adapter of {}{}{}{}",
                     Front(between("base_model: ", "\n"), "transformers", "lora", judges), name, text, kResults,
                     between(kResults, kUse),
                     Commands(adapter.find(kChat) != adapter.npos, judges) + (judges ? kUseJudge : kUseModel));
}

}  // namespace

std::string ModelCard(const ModelCardFacts& f) {
  RunConfig config = f.config;
  const OptionSet options = RunOptions(config);
  const auto setting = [&](const char* name) { return Cell(ValueAsYaml(*options.Find(name))); };
  const std::string base = f.lora && !f.lora->base_model.empty() ? f.lora->base_model : f.config.model.model;

  const ObjectiveRule& task = *f.config.objective.rule;
  const bool judges = task.head != ObjectiveRule::Head::kVocabulary;
  std::string text = Front(YamlText(base), f.lora ? "peft" : "transformers", f.lora ? "lora" : task.name, judges);
  text += fmt::format("{}{}\n\n", f.lora ? kAdapterTitle : "# Fine-tuned model of ", BaseName(base));
  text += fmt::format("{}`{}` ({}) was trained with Temper {}. {} of {} million parameters were trained.\n\n",
                      f.lora ? kAdapterText : "This fine-tuned model of ", base, f.architecture, TEMPER_VERSION,
                      fmt::format("{:.2f}", 1e-6 * static_cast<double>(f.trained)),
                      fmt::format("{:.2f}", 1e-6 * static_cast<double>(f.parameters)));

  if (f.diverged) {
    text += fmt::format(
        "**Warning: the run diverged:** {}. This model is likely worse than the one it was trained from.\n\n",
        f.progress.divergence.Describe(f.progress.step));
  }
  text += fmt::format("{}\n| | |\n|---|---|\n", kResults);
  if (task.name != Sft().name) text += fmt::format("| task | {}: {} |\n", task.name, task.help);
  text += fmt::format("| steps | {} |\n| tokens trained on | {} |\n", f.progress.step, f.progress.tokens);
  if (f.loss) text += fmt::format("| training loss at the end | {:.4f} |\n", *f.loss);
  if (const BestEvaluation& best = f.progress.best; best.value) {
    const std::string what = best.by.is_loss() ? "lowest evaluation loss" : "best " + best.by.shown();
    text += fmt::format("| {} | {:.4f}, at step {} |\n", what, *best.value, best.step);
  }

  text += "\n## Data\n\n| | |\n|---|---|\n";
  text += fmt::format("| training data | `{}`, {} |\n", setting("data"), Counted(f.samples, "sample"));
  if (!f.config.data.eval_data.empty()) text += fmt::format("| evaluation data | `{}` |\n", setting("eval_data"));
  if (f.config.data.eval_fraction > 0) text += fmt::format("| held out | {} |\n", setting("eval_fraction"));

  text += "\n## Settings\n\n| | |\n|---|---|\n";
  const bool by_steps = f.config.length.max_steps.value_or(0) > 0;
  std::vector<const char*> names = {
      "method",    "dtype",        "learning_rate", "lr_scheduler_type",
      "optimizer", "weight_decay", "max_grad_norm", by_steps ? "max_steps" : "num_train_epochs",
      "seed"};
  if (f.config.model.embedding_dtype != BaseType::kAuto) names.insert(names.begin() + 2, "embedding_dtype");
  if (f.config.model.base_dtype != BaseType::kAuto) names.insert(names.begin() + 2, "base_dtype");
  if (f.lora) {
    if (!f.config.lora.saved_names().empty()) names.insert(names.begin() + 1, "train_modules");
    names.insert(names.begin() + 1, {"lora.r", "lora.alpha", "lora.dropout", "lora.target_modules", "lora.use_rslora"});
  }
  const int64_t rows =
      f.config.batch.per_device_train_batch_size * f.config.batch.gradient_accumulation_steps * f.data_ranks;
  text += fmt::format("| rows a step | {} of {} |\n", rows, Counted(*f.config.data.max_seq_len, "token"));
  for (const char* name : names) {
    const std::string value = setting(name);
    if (value != "null") text += fmt::format("| {} | {} |\n", name, value);
  }

  text += "\n" + Commands(f.chats, judges);
  if (judges) return text + (f.lora ? kUseJudgingAdapter : kUseJudge);
  if (!f.lora) return text + kUseModel;
  return text + fmt::format(kUseAdapter, f.own_generation_config ? ", GenerationConfig" : "",
                            f.own_generation_config ? kUseGenerationConfig : "");
}

bool IsOwnModelCard(Env& env, const std::string& path) {
  const auto text = ReadTextFile(env, path, kMostOfCard);
  return text.ok() && text->find(kMark) != text->npos;
}

namespace {

// Keeps a user's README.md. Without a card, one of an earlier result goes.
Status WriteCard(Env& env, const std::string& folder, const std::string& card) {
  const std::string path = JoinPath(folder, kModelCardFile);
  const bool exists = env.IsFile(path);
  if (exists && !IsOwnModelCard(env, path)) return OkStatus();
  if (!card.empty()) return WriteTextFileAtomically(env, path, card);
  return exists ? env.RemoveFile(path) : OkStatus();
}

}  // namespace

Status WriteModelCard(Env& env, const std::string& folder, const ModelCardFacts& facts) {
  return WriteCard(env, folder, ModelCard(facts));
}

Status WriteExportedCard(Env& env, const std::string& result, bool adapter, const std::string& folder) {
  const std::string path = JoinPath(result, kModelCardFile);
  std::string card;
  if (IsOwnModelCard(env, path)) {
    TEMPER_ASSIGN_OR_RETURN(card, ReadTextFile(env, path, kMostOfCard));
  }
  return WriteCard(env, folder, adapter ? MergedCard(card) : card);
}

}  // namespace temper

#include "run/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantity.h"
#include "config/run_options.h"
#include "format/json.h"
#include "plan/compiled_run.h"

namespace temper {
namespace {

constexpr char kMark[] = "<!-- Written by Temper. A README.md without this line is kept. -->";

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

}  // namespace

std::string ModelCard(const ModelCardFacts& f) {
  RunConfig config = f.config;
  const OptionSet options = RunOptions(config);
  const auto setting = [&](const char* name) { return Cell(ValueAsYaml(*options.Find(name))); };
  const std::string base = f.lora && !f.lora->base_model.empty() ? f.lora->base_model : f.config.model.model;
  const std::string kind = f.lora ? "LoRA adapter" : "fine-tuned model";

  std::string text = fmt::format(
      "---\nbase_model: {}\nlibrary_name: {}\npipeline_tag: text-generation\ntags:\n- temper\n- {}\n---\n\n{}\n\n",
      YamlText(base), f.lora ? "peft" : "transformers", f.lora ? "lora" : "sft", kMark);
  text += fmt::format("# {} of {}\n\n", f.lora ? "LoRA adapter" : "Fine-tuned model", BaseName(base));
  text += fmt::format("This {} of `{}` ({}) was trained with Temper {}. {} of {} million parameters were trained.\n\n",
                      kind, base, f.architecture, TEMPER_VERSION,
                      fmt::format("{:.2f}", 1e-6 * static_cast<double>(f.trained)),
                      fmt::format("{:.2f}", 1e-6 * static_cast<double>(f.parameters)));

  text += "## Results\n\n| | |\n|---|---|\n";
  text += fmt::format("| steps | {} |\n| tokens trained on | {} |\n", f.progress.step, f.progress.tokens);
  if (f.loss) text += fmt::format("| training loss at the end | {:.4f} |\n", *f.loss);
  if (f.progress.best.loss) {
    text +=
        fmt::format("| lowest evaluation loss | {:.4f}, at step {} |\n", *f.progress.best.loss, f.progress.best.step);
  }

  text += "\n## Data\n\n| | |\n|---|---|\n";
  text += fmt::format("| training data | `{}`, {} |\n", setting("data"), Counted(f.samples, "sample"));
  if (!f.config.data.eval_data.empty()) text += fmt::format("| evaluation data | `{}` |\n", setting("eval_data"));
  if (f.config.data.eval_fraction > 0) text += fmt::format("| held out | {} |\n", setting("eval_fraction"));

  text += "\n## Settings\n\n| | |\n|---|---|\n";
  std::vector<const char*> names = {"method",    "dtype",        "learning_rate", "lr_scheduler_type",
                                    "optimizer", "weight_decay", "max_grad_norm", "num_train_epochs",
                                    "max_steps", "seed"};
  if (f.config.model.base_dtype != BaseType::kAuto) names.insert(names.begin() + 2, "base_dtype");
  if (f.lora) {
    names.insert(names.begin() + 1, {"lora.r", "lora.alpha", "lora.dropout", "lora.target_modules", "lora.use_rslora"});
  }
  const int64_t rows =
      f.config.batch.per_device_train_batch_size * f.config.batch.gradient_accumulation_steps * f.data_ranks;
  text += fmt::format("| rows a step | {} of {} |\n", rows, Counted(*f.config.data.max_seq_len, "token"));
  for (const char* name : names) {
    const std::string value = setting(name);
    if (value != "null") text += fmt::format("| {} | {} |\n", name, value);
  }

  text += "\n## Use\n\n```sh\n";
  if (f.chats) text += "temper chat FOLDER\n";
  text += "temper generate FOLDER --prompt \"...\"\n```\n\n```python\n";
  text += f.lora ? "from peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer\n\n"
                   "model = AutoPeftModelForCausalLM.from_pretrained(\"FOLDER\")\n"
                 : "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
                   "model = AutoModelForCausalLM.from_pretrained(\"FOLDER\")\n";
  return text + "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n";
}

bool IsOwnModelCard(Env& env, const std::string& path) {
  const auto text = ReadTextFile(env, path, MiB(1));
  return text.ok() && text->find(kMark) != text->npos;
}

Status WriteModelCard(Env& env, const std::string& folder, const ModelCardFacts& facts) {
  const std::string path = JoinPath(folder, kModelCardFile);
  if (env.IsFile(path) && !IsOwnModelCard(env, path)) return OkStatus();
  return WriteTextFileAtomically(env, path, ModelCard(facts));
}

}  // namespace temper

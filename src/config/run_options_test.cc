#include "config/run_options.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "base/scratch_folder.h"
#include "config/command_line.h"
#include "config/option_yaml.h"

namespace temper::run_options_test {
namespace {

Status Command(RunConfig& config, const std::vector<std::string>& arguments) {
  const OptionSet options = RunOptions(config);
  const Result<CommandLine> line = ReadCommandLine(arguments, options);
  return line.ok() ? ApplyCommandLine(*line, options) : line.status();
}

std::string CommandError(const std::vector<std::string>& arguments) {
  RunConfig config;
  const Status status = Command(config, arguments);
  EXPECT_FALSE(status.ok());
  return status.message();
}

std::string YamlError(std::string_view text) {
  const Result<RunConfig> config = ParseRunConfig(text, "run.yaml");
  EXPECT_FALSE(config.ok()) << text;
  return config.status().message();
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(RunOptions, ReadsYamlOfEveryType) {
  const auto config = ParseRunConfig(R"(
# a run
model: /models/llama
from_scratch: false
method: lora
dtype: bf16
learning_rate: 1e-4
num_train_epochs: 2
max_steps: null
resume: true
lora:
  r: 8
  alpha: 16.5
  target_modules: [q_proj, v_proj]
  exclude_modules: '.*\.0\..*'
  rank_pattern: {o_proj: 4, "layers.1.q_proj": 32}
lr_scheduler_type: warmup_stable_decay
lr_scheduler_kwargs:
  num_decay_steps: 10
  decay_type: 1-sqrt
memory:
  recompute: selective
  recompute_blocks: 4
)",
                                     "run.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model.model, "/models/llama");
  EXPECT_EQ(config->model.dtype, ComputeType::kBf16);
  EXPECT_EQ(config->optimizer.learning_rate, 1e-4);
  EXPECT_EQ(config->length.num_train_epochs, 2);
  EXPECT_EQ(config->length.max_steps, std::nullopt);
  EXPECT_EQ(config->output.resume, "");
  EXPECT_EQ(config->lora.r, 8);
  EXPECT_EQ(config->lora.alpha, 16.5);
  EXPECT_EQ(std::get<std::vector<std::string>>(config->lora.target_modules),
            (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(std::get<std::string>(config->lora.exclude_modules), R"(.*\.0\..*)");
  EXPECT_EQ(config->lora.rank_pattern, (IntPatterns{{"o_proj", 4}, {"layers.1.q_proj", 32}}));
  EXPECT_EQ(config->length.kwargs.num_decay_steps, 10);
  EXPECT_EQ(config->length.kwargs.decay_type, RampShape::kOneMinusSqrt);
  EXPECT_EQ(config->machine.recompute, Recompute::kSelective);
  EXPECT_EQ(config->machine.recompute_blocks, 4);
}

TEST(RunOptions, ReadsCommandLinesOfEveryForm) {
  RunConfig config;
  const Status status = Command(config, {"--model",
                                         "m",
                                         "--learning_rate=3e-5",
                                         "--lora.r",
                                         "4",
                                         "--no-packing",
                                         "--overwrite",
                                         "--skip-bad-rows",
                                         "true",
                                         "--lora.target_modules",
                                         "q_proj,k_proj",
                                         "--lora.alpha_pattern",
                                         "{q_proj: 8}",
                                         "--resume=ck",
                                         "--warmup_steps",
                                         "none",
                                         "--lr_scheduler_kwargs",
                                         "{\"min_lr\": 1e-5}",
                                         "--seed",
                                         "8",
                                         "--seed=8"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.model.model, "m");
  EXPECT_EQ(config.optimizer.learning_rate, 3e-5);
  EXPECT_EQ(config.lora.r, 4);
  EXPECT_FALSE(config.data.packing);
  EXPECT_TRUE(config.output.overwrite);
  EXPECT_TRUE(config.data.skip_bad_rows);
  EXPECT_EQ(std::get<1>(config.lora.target_modules), (std::vector<std::string>{"q_proj", "k_proj"}));
  EXPECT_EQ(config.lora.alpha_pattern, (NumberPatterns{{"q_proj", 8}}));
  EXPECT_EQ(config.output.resume, "ck");
  EXPECT_EQ(config.length.kwargs.min_lr, 1e-5);
  EXPECT_EQ(config.machine.seed, 8) << "the same value twice is no mistake";
}

TEST(RunOptions, SeveralKeysOfASectionNeedNoQuotes) {
  RunConfig config;
  const Status status =
      Command(config, {"--mesh", "pp=2,fsdp=4,pp_layers=[5,7]", "--lora=r=4,rank_pattern={q_proj=8}"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.mesh.pp, 2);
  EXPECT_EQ(config.mesh.fsdp, 4);
  EXPECT_EQ(config.mesh.pp_layers, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(config.lora.r, 4);
  EXPECT_TRUE(Command(config, {"--lora", "r=2,target_modules='.*(q,)proj'"}).ok()) << "one value, with a comma in it";
  EXPECT_HAS(CommandError({"--mesh", "fsdp=2,tp"}), "--mesh: 'tp' has no value; write --mesh KEY=VALUE,KEY=VALUE");
  EXPECT_HAS(CommandError({"--mesh", "tp=,fsdp=2"}), "'tp' has no value");
  EXPECT_HAS(CommandError({"--mesh=fsdp=2,tp="}), "'tp' has no value");
  EXPECT_HAS(CommandError({"--mesh", "fsdp=2,"}), "--mesh 'fsdp=2,' ends in a comma");
  EXPECT_HAS(CommandError({"--mesh=fsdp=2, "}), "ends in a comma");
}

// Every option but those that are lists of files.
TEST(RunOptions, NoOptionTakesTwoValues) {
  RunConfig config;
  const OptionSet all = RunOptions(config);
  for (const OptionGroup& group : all.groups()) {
    for (const Option& option : group.options) {
      if (std::holds_alternative<Repeatable>(option.target)) continue;
      std::vector<std::string> candidates = {"true", "false", "0.25",     "0.5",      "-0.5",   "-2",
                                             "1",    "2",     "3",        "4",        "0.125",  "a",
                                             "b",    "[1]",   "[[a, b]]", "[[a, c]]", "{a: 1}", "{a: 2}"};
      if (const auto* choice = std::get_if<Choice>(&option.target)) {
        candidates.assign(choice->names.begin(), choice->names.end());
      }
      std::vector<std::string> texts, values;
      for (const std::string& text : candidates) {
        if (!SetFromText(option, text, "test").ok()) continue;
        if (!values.empty() && ValueAsYaml(option) == values.front()) continue;
        texts.push_back(text);
        values.push_back(ValueAsYaml(option));
      }
      ASSERT_GE(texts.size(), 2u) << option.name;
      EXPECT_HAS(CommandError({"--" + option.name + "=" + texts[0], "--" + option.name + "=" + texts[1]}),
                 option.name + " is given twice, as '" + texts[0] + "' and as '" + texts[1] + "': remove one");
    }
  }
}

TEST(RunOptions, AnOptionWithTwoValuesIsAnErrorThatNamesBoth) {
  EXPECT_HAS(CommandError({"--seed", "7", "--seed", "8"}), "seed is given twice, as '7' and as '8': remove one");
  EXPECT_HAS(CommandError({"--packing", "--no-packing"}), "packing is given twice, as 'true' and as 'false'");
  EXPECT_HAS(CommandError({"--lora.r", "4", "--lora", "alpha=8,r=16"}), "lora.r is given twice, as '4' and as '16'");
  RunConfig config;
  EXPECT_TRUE(Command(config, {"--learning_rate", "1e-4", "--learning-rate=0.0001"}).ok()) << "one value";
}

TEST(RunOptions, CommandLineWinsOverTheFileItNames) {
  const ScratchFolder folder;
  const std::string path = folder / "run.yaml";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, "learning_rate: 1\nseed: 5\n").ok());
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const std::vector<std::string> arguments = {"--learning_rate", "2", path, "--resume"};
  const auto line = ReadCommandLine(arguments, options);
  ASSERT_TRUE(line.ok());
  const Status status = ReadOptions(PosixEnv(), *line, options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.optimizer.learning_rate, 2);
  EXPECT_EQ(config.machine.seed, 5);
  EXPECT_EQ(config.output.resume, "");
}

TEST(RunOptions, AFlagNeverSwallowsTheFile) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const std::vector<std::string> arguments = {"--overwrite", "run.yaml"};
  const auto line = ReadCommandLine(arguments, options);
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->positional, std::vector<std::string>{"run.yaml"});
}

TEST(RunOptions, NegativeNumbersAreValues) {
  RunConfig config;
  EXPECT_TRUE(Command(config, {"--max_steps", "-1"}).ok());
  EXPECT_EQ(config.length.max_steps, -1);
  EXPECT_HAS(CommandError({"--learning_rate", "-1e-4"}), "learning_rate should be at least 0, but is -0.0001");
}

TEST(RunOptions, TypeErrorsNameFileLineAndKey) {
  EXPECT_EQ(YamlError("seed: 1\nlora:\n  r: many\n"),
            "run.yaml line 3: lora.r should be a whole number, but is 'many'");
  EXPECT_HAS(YamlError("learning_rate: [1]"), "run.yaml line 1: learning_rate should be a number, but is a list");
  EXPECT_HAS(YamlError("\n\npacking: 1"), "run.yaml line 3: packing should be true or false, but is '1'");
  EXPECT_HAS(YamlError("dtype: fp16"), "dtype should be one of auto, bf16, f32, but is 'fp16'");
  const auto torchs = ParseRunConfig("dtype: bfloat16\ndevice: cuda\n", "run.yaml");  // which names the same
  ASSERT_TRUE(torchs.ok()) << torchs.status().message();
  EXPECT_EQ(torchs->model.dtype, ComputeType::kBf16);
  EXPECT_EQ(torchs->machine.device, DeviceChoice::kGpu);
  EXPECT_HAS(YamlError("method: qlora"),
             "method should be one of lora, full, but is 'qlora'; QLoRA is method lora with "
             "base_dtype nf4");
  EXPECT_HAS(YamlError("dtype: float16"), "half floats are not computed with");
  const auto trainers = ParseRunConfig("optimizer: adamw_torch_fused\nbase_dtype: 4bit\n", "run.yaml");
  ASSERT_TRUE(trainers.ok()) << trainers.status().message();
  EXPECT_EQ(trainers->model.base_dtype, BaseType::kNf4);
  EXPECT_HAS(YamlError("lora.r: 1.5"), "a whole number");
  EXPECT_HAS(YamlError("lora.r: 0"), "lora.r should be at least 1, but is 0");
  EXPECT_HAS(YamlError("lora.dropout: 1"), "at least 0 and below 1");
  EXPECT_HAS(YamlError("seed:"), "seed has no value");
  EXPECT_HAS(YamlError("output_dir: 17"), "put it in quotes");
  EXPECT_HAS(YamlError("lora: 16"), "lora is a section");
  EXPECT_HAS(YamlError("lora: {target_modules: [q_proj, 3]}"), "'3'");
  EXPECT_HAS(YamlError("lora: {r: 1}\nlora.r: 2"), "given before");
  EXPECT_HAS(YamlError("- seed"), "is a list");
  EXPECT_HAS(YamlError("seed: 99999999999999999999"), "run.yaml line 1");
  EXPECT_HAS(YamlError("seed: 18446744073709551615"), "a whole number");
  EXPECT_HAS(YamlError("learning_rate: .nan"), "a number");
  EXPECT_HAS(YamlError("data: \"a\\0b\""), "escape");
  EXPECT_FALSE(ParseRunConfig("seed: [", "run.yaml").ok());
}

TEST(RunOptions, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(YamlError("seed: 1\nlearnig_rate: 1e-4"),
            "run.yaml line 2: unknown key 'learnig_rate'; did you mean 'learning_rate'?");
  EXPECT_HAS(YamlError("lora: {alhpa: 3}"), "did you mean 'lora.alpha'?");
  EXPECT_HAS(YamlError("loar: {alpha: 3}"), "did you mean 'lora'?");
  EXPECT_HAS(CommandError({"--memory.devise", "1GiB"}), "did you mean 'memory.device'?");
  EXPECT_HAS(CommandError({"--columns.prompt", "question"}), "did you mean 'columns'?");
  EXPECT_HAS(CommandError({"--grad_accumulation_steps", "3"}), "did you mean 'gradient_accumulation_steps'?");
  EXPECT_HAS(YamlError("zzzzzzzzzzzz: 1"), "--help lists all names");
  EXPECT_HAS(CommandError({"--" + std::string(100000, 'x')}), "--help");
}

TEST(RunOptions, AllMistakesOfAFileAreToldInOneAnswer) {
  const std::string error = YamlError("foo_bar_baz: 1\nlora: {alhpa: 3, r: x}\ndata: a\nlearning_rate: fast\n");
  EXPECT_HAS(error, "run.yaml: 4 mistakes:\n  run.yaml line 1: unknown key 'foo_bar_baz'");
  EXPECT_HAS(error, "\n  run.yaml line 2: unknown key 'lora.alhpa'");
  EXPECT_HAS(error, "lora.r should be");
  EXPECT_HAS(error, "\n  run.yaml line 4: learning_rate should be a number");
}

TEST(RunOptions, ThousandsOfMistakesAreCountedNotListed) {
  std::string yaml;
  for (int i = 0; i < 5000; ++i) yaml += "zzzzzzzzzzzz" + std::to_string(i) + ": 1\n";
  const std::string error = YamlError(yaml);
  EXPECT_HAS(error, "run.yaml: 5000 mistakes:");
  EXPECT_HAS(error, "\n  and 4900 more");
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 101);
}

TEST(RunOptions, ForeignNamesSuggestOurs) {
  EXPECT_HAS(YamlError("cutoff_len: 512"), "its name here is 'max_seq_len'");
  EXPECT_HAS(YamlError("micro_batch_size: 2"), "'per_device_train_batch_size'");
  EXPECT_HAS(YamlError("lora_r: 2"), "'lora.r'");
  EXPECT_HAS(YamlError("lora: {lora_alpha: 2}"), "'lora.alpha'");
  EXPECT_HAS(YamlError("lora: {modules_to_save: [lm_head]}"), "its name here is 'train_modules'");
  EXPECT_HAS(YamlError("gradient_checkpointing: true"), "memory.recompute: block");
  EXPECT_HAS(CommandError({"--lr", "1"}), "'learning_rate'");
  EXPECT_HAS(CommandError({"--load-in-4bit"}), "base_dtype: nf4");
  EXPECT_HAS(YamlError("quantization_bit: 4"), "4 is base_dtype: nf4");
  EXPECT_HAS(YamlError("quantization: nf4"), "'base_dtype'");
  EXPECT_HAS(CommandError({"--bf16"}), "dtype: bf16");
}

TEST(RunOptions, AnOptimizerIsChosenByTheNameOfItsRule) {
  EXPECT_EQ(RunConfig().optimizer.rule, UpdateRuleOf(Op::kAdamw));
  for (const UpdateRule* rule : UpdateRules()) {
    const auto config = ParseRunConfig("optimizer: " + std::string(rule->name), "run.yaml");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->optimizer.rule, rule);
  }
  const auto unknown = ParseRunConfig("optimizer: apollo_adamw", "run.yaml");
  ASSERT_FALSE(unknown.ok());
  EXPECT_HAS(unknown.status().message(), "adamw");
  EXPECT_HAS(unknown.status().message(), "sgd");
}

TEST(RunOptions, CommandLineMistakesNameTheRemedy) {
  EXPECT_HAS(CommandError({"--seed"}), "--seed needs a value: --seed N");
  EXPECT_HAS(CommandError({"--seed", "--overwrite"}), "needs a value");
  EXPECT_HAS(CommandError({"-seed", "3"}), "two dashes: --seed");
  EXPECT_HAS(CommandError({"--lora", "16"}), "--lora.KEY VALUE");
  EXPECT_HAS(CommandError({"--no-packing=true"}), "takes no value");
  EXPECT_HAS(CommandError({"--packing", "no"}), "packing should be true or false, but is 'no'");
  EXPECT_HAS(CommandError({"--threads", "2000"}), "threads should be at least 1 and at most 1024, but is 2000");
  EXPECT_HAS(CommandError({"--no-seed"}), "unknown option --no-seed");
  EXPECT_HAS(CommandError({"--lora", "{rank: 3}"}), "'lora.r'");
  EXPECT_HAS(CommandError({"--seed="}), "a whole number");
  RunConfig config;
  const OptionSet options = RunOptions(config);
  CommandLine line;
  line.positional = {"seed=3"};
  EXPECT_HAS(ReadOptions(PosixEnv(), line, options).message(), "--seed=3");
  line.positional = {"completion=answer"};
  EXPECT_HAS(ReadOptions(PosixEnv(), line, options).message(), "'completion=answer' belongs to no option");
  line.positional = {"a.yaml", "b.yaml"};
  EXPECT_HAS(ReadOptions(PosixEnv(), line, options).message(), "unexpected argument 'b.yaml'");
}

TEST(RunOptions, PrintedConfigurationReadsBackEqual) {
  RunConfig config;
  config.model.model = "C: # odd \"path\"\\ with\ttabs, \x7f and ümläuts";
  config.model.adapter = "null";
  config.data.data = {{.path = "1e3"}, {.path = "b", .passes = 0.1}, {.path = "c: d", .max_samples = 3}};
  config.data.eval_data = {{.path = "-"}};
  config.model.base = "yes";
  config.output.output_dir = "./out dir";
  config.output.resume = "true";
  config.lora.target_modules = R"(.*\.(q|k)_proj{1,2})";
  config.lora.exclude_modules = std::vector<std::string>{"lm_head", "a,b: c", "true"};
  config.lora.rank_pattern = {{"layers.0.q_proj", 4}, {"^x: {y}$", 2}};
  config.lora.alpha_pattern = {{"v", 0.1}};
  config.lora.alpha = 1.0 / 3;
  config.lora.modules_to_save = std::vector<std::string>{"embed_tokens", "a: b"};
  config.lora.ensure_weight_tying = true;
  config.optimizer.lora_plus_ratio = 16;
  config.optimizer.groups = {{.modules = {"lm_head", "x, y"}, .learning_rate = 1e-5, .weight_decay = 0},
                             {.modules = {"q_proj"}, .weight_decay = 0.1}};
  config.optimizer.learning_rate = 0x1.fffffffffffffp-20;
  config.optimizer.settings.Set("adam_epsilon", 5e-324);
  config.length.num_train_epochs = 1e300;
  config.length.kwargs.decay_type = RampShape::kOneMinusSqrt;
  config.length.kwargs.num_stable_steps = 0;
  config.machine.recompute = Recompute::kBlock;
  config.machine.seed = INT64_MAX;
  const std::string text = PrintRunConfig(config, {{"seed", "a note: with # signs"}});
  const auto back = ParseRunConfig(text, "saved");
  ASSERT_TRUE(back.ok()) << back.status().message() << "\n" << text;
  EXPECT_EQ(PrintRunConfig(*back), PrintRunConfig(config));
  EXPECT_EQ(back->model.model, config.model.model);
  EXPECT_EQ(back->model.adapter, config.model.adapter);
  EXPECT_EQ(back->data.data, config.data.data);
  EXPECT_EQ(back->model.base, config.model.base);
  EXPECT_EQ(back->output.resume, config.output.resume);
  EXPECT_EQ(back->lora, config.lora);
  EXPECT_EQ(back->optimizer.groups, config.optimizer.groups);
  EXPECT_EQ(back->optimizer.lora_plus_ratio, 16);
  EXPECT_EQ(back->optimizer.learning_rate, config.optimizer.learning_rate);
  EXPECT_EQ(back->optimizer.settings.Get("adam_epsilon"), 5e-324);
  EXPECT_EQ(back->length.kwargs, config.length.kwargs);
  EXPECT_EQ(back->machine.seed, config.machine.seed);
}

TEST(RunOptions, SettingsThatAreNewerThanSavedFilesGoUnsaidUntilTheyAreSet) {
  RunConfig config;
  const std::string text = PrintRunConfig(config);
  for (const char* name : {"train_modules", "ensure_weight_tying", "lora_plus_ratio", "optimizer_groups"}) {
    EXPECT_EQ(text.find(name), std::string::npos) << name;
  }
  EXPECT_HAS(PrintRunConfig(config, {{"lora_plus_ratio", "why"}}), "lora_plus_ratio: null  # why");
  config.lora.modules_to_save = std::vector<std::string>{"norm"};
  EXPECT_HAS(PrintRunConfig(config), "train_modules: [norm]");
}

TEST(RunOptions, GroupsAreMapsInFilesAndOnTheCommandLine) {
  RunConfig config;
  ASSERT_TRUE(Command(config, {"--train_modules", "embed_tokens,lm_head", "--optimizer_groups",
                               "{modules: lm_head, learning_rate: 1e-5}", "--optimizer_groups",
                               "{modules: [q_proj, norm], weight_decay: 0}"})
                  .ok());
  EXPECT_EQ(config.lora.saved_names(), (std::vector<std::string>{"embed_tokens", "lm_head"}));
  ASSERT_EQ(config.optimizer.groups.size(), 2u);
  EXPECT_EQ(config.optimizer.groups[0], (OptimizerGroup{.modules = {"lm_head"}, .learning_rate = 1e-5}));
  EXPECT_EQ(config.optimizer.groups[1], (OptimizerGroup{.modules = {"q_proj", "norm"}, .weight_decay = 0}));
  const auto file = ParseRunConfig("optimizer_groups: {modules: lm_head, weight_decay: 0.5}", "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->optimizer.groups[0].weight_decay, 0.5);
  EXPECT_HAS(YamlError("optimizer_groups: [lm_head]"), "a group should be a map");
  EXPECT_HAS(YamlError("optimizer_groups: [{learning_rate: 1}]"), "a group without modules");
  EXPECT_HAS(YamlError("optimizer_groups: [{modules: a}]"), "neither learning_rate nor weight_decay");
  EXPECT_HAS(YamlError("optimizer_groups: [{modules: a, lr: 1}]"), "unknown setting 'lr' of a group");
  EXPECT_HAS(YamlError("optimizer_groups: [{modules: a, weight_decay: x}]"), "weight_decay should be a number");
}

// Paths and patterns may contain any text: all characters with a meaning in YAML, alone and combined.
TEST(RunOptions, AnyTextReadsBackEqual) {
  const std::vector<std::string> pieces = {"a",
                                           "1",
                                           ".",
                                           "-",
                                           "_",
                                           "/",
                                           " ",
                                           "\t",
                                           "\n",
                                           "\r",
                                           "\"",
                                           "'",
                                           ":",
                                           "#",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           "&",
                                           "*",
                                           "!",
                                           "|",
                                           ">",
                                           "%",
                                           "@",
                                           "`",
                                           "\\",
                                           "~",
                                           "?",
                                           "=",
                                           "<<",
                                           "null",
                                           "e5",
                                           "---",
                                           "...",
                                           "ü",
                                           "\x7f",
                                           "\x01",
                                           "\x1b",
                                           "\xc2\x85",
                                           "\xc2\xa0",
                                           "\xe2\x80\xa8",
                                           "\xef\xbb\xbf",
                                           "\xf0\x9f\x99\x82",
                                           "0x1"};
  uint32_t state = 7;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u, state >> 8; };
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint32_t length = next() % 5; text.size() < length || text.empty();) text += pieces[next() % pieces.size()];
    RunConfig config;
    config.data.data = {{.path = text}};
    config.output.resume = text;
    config.lora.exclude_modules = std::vector<std::string>{text, "b"};
    config.lora.rank_pattern = {{text, 2}};
    config.mesh.sharding = {{text, "fsdp,-"}, {"lm_head", text}};
    const auto back = ParseRunConfig(PrintRunConfig(config), "saved");
    ASSERT_TRUE(back.ok()) << back.status().message() << "\n" << PrintRunConfig(config);
    EXPECT_EQ(back->data.data, config.data.data);
    EXPECT_EQ(back->output.resume, text);
    EXPECT_EQ(back->lora, config.lora);
    EXPECT_EQ(back->mesh.sharding, config.mesh.sharding);
  }
}

TEST(RunOptions, VariablesOfTheChatTemplateAreAnObjectInFilesAndOnTheCommandLine) {
  const std::string want = R"({"enable_thinking":false,"date_string":"26 Jul 2024","n":[1,null]})";
  for (const char* yaml : {"chat_template_kwargs: {enable_thinking: false, date_string: 26 Jul 2024, n: [1, null]}\n",
                           "chat_template_kwargs:\n  enable_thinking: false\n  date_string: 26 Jul 2024\n  n: [1, ~]\n",
                           "chat_template_kwargs: '{\"enable_thinking\": false, \"date_string\": \"26 Jul 2024\", "
                           "\"n\": [1, null]}'\n"}) {
    const auto file = ParseRunConfig(yaml, "run.yaml");
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->data.chat_template_kwargs.text, want);
    const auto back = ParseRunConfig(PrintRunConfig(*file), "saved");
    ASSERT_TRUE(back.ok()) << back.status().message() << "\n" << PrintRunConfig(*file);
    EXPECT_EQ(back->data.chat_template_kwargs.text, want);
    EXPECT_EQ(Differences(RunConfig(), *file, OnResume::kSame).size(), 1u);
  }
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const Option& option = *options.Find("chat_template_kwargs");
  ASSERT_TRUE(SetFromText(option, R"({"enable_thinking": false})", "command line").ok());
  EXPECT_EQ(config.data.chat_template_kwargs.text, R"({"enable_thinking":false})");
  for (const char* wrong : {"enable_thinking=false", "[1]", "7"}) {
    EXPECT_HAS(SetFromText(option, wrong, "command line").message(), "chat_template_kwargs should be a JSON object");
  }
  ASSERT_TRUE(SetFromText(option, "{}", "command line").ok());
  EXPECT_EQ(config.data.chat_template_kwargs.text, "");
}

TEST(RunOptions, TheBatchIsANumberOfRowsOrAuto) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const Option& option = *options.Find("per_device_train_batch_size");
  ASSERT_TRUE(SetFromText(option, "auto", "command line").ok());
  EXPECT_TRUE(config.batch.auto_cut);
  EXPECT_EQ(ValueAsYaml(option), "auto");
  const auto file = ParseRunConfig(PrintRunConfig(config, {}), "run.yaml");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->batch.auto_cut);
  ASSERT_TRUE(SetFromText(option, "4", "command line").ok());
  EXPECT_FALSE(config.batch.auto_cut);
  EXPECT_EQ(config.batch.per_device_train_batch_size, 4);
  ASSERT_TRUE(SetFromText(option, "auto", "command line").ok());
  EXPECT_EQ(config.batch.per_device_train_batch_size, 1) << "what was given before does not count";
  EXPECT_FALSE(ParseRunConfig("per_device_train_batch_size: 0", "run.yaml").ok());
  EXPECT_HAS(YamlError("per_device_train_batch_size: automatic"), "should be a whole number or auto, but is");
}

TEST(RunOptions, FormerNamesGoOnWorkingAndAreNeverWritten) {
  const auto file = ParseRunConfig("memory: {placement: host}\nplacement: [[norm, replicate]]\n", "run.yaml");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->memory.policy, TierPolicy::kHost);
  EXPECT_EQ(file->mesh.sharding, (TextPairs{{"norm", "replicate"}}));
  const std::string text = PrintRunConfig(*file, {});
  EXPECT_EQ(text.find("placement"), text.npos) << text;
  const auto again = ParseRunConfig(text, "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->mesh.sharding, file->mesh.sharding);
  EXPECT_FALSE(ParseRunConfig("memory: {placement: host, tiers: host}\n", "run.yaml").ok()) << "given twice";
  RunConfig config;
  const OptionSet options = RunOptions(config);
  for (const auto& [former, now] : {std::pair("placement", "mesh.sharding"), {"memory.placement", "memory.tiers"}}) {
    ASSERT_EQ(options.Find(former), options.Find(now));
    EXPECT_TRUE(options.IsFormer(former));
    EXPECT_FALSE(options.IsFormer(now));
  }
  EXPECT_FALSE(options.IsFormer("learning-rate"));
  EXPECT_EQ(options.Advice("memory.placment"), "did you mean 'memory.tiers'?");
}

TEST(RunOptions, ShardingRulesAreAListOfPairsInFilesAndOnTheCommandLine) {
  const TextPairs want = {{"lm_head", "fsdp,tp"}, {"norm", "replicate"}};
  const auto file = ParseRunConfig("mesh.sharding: [[lm_head, \"fsdp,tp\"], [norm, replicate]]\n", "run.yaml");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->mesh.sharding, want);
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const Option& option = *options.Find("mesh.sharding");
  ASSERT_TRUE(SetFromText(option, "[[lm_head, \"fsdp,tp\"], [norm, replicate]]", "command line").ok());
  EXPECT_EQ(config.mesh.sharding, want);
  for (const char* wrong :
       {"lm_head", "[lm_head, replicate]", "[[lm_head]]", "[[lm_head, 2]]", "{lm_head: replicate}"}) {
    const Status status = SetFromText(option, wrong, "command line");
    EXPECT_HAS(status.message(), "mesh.sharding should be a list of pairs, such as [[lm_head, \"fsdp,tp\"]]");
  }
  EXPECT_EQ(config.mesh.sharding, want) << "a refused value changes nothing";
}

TEST(RunOptions, DefaultConfigurationReadsBackEqual) {
  const auto back = ParseRunConfig(PrintRunConfig(RunConfig()), "saved");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(*back == RunConfig());
}

TEST(RunOptions, ReadsListsOfWholeNumbers) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const Option& layers = *options.Find("mesh.pp_layers");
  for (const char* text : {"[5, 0, 7]", "5,0,7"}) {
    ASSERT_TRUE(SetFromText(layers, text, "test").ok());
    EXPECT_EQ(config.mesh.pp_layers, (IntList{5, 0, 7}));
    EXPECT_EQ(ValueAsYaml(layers), "[5, 0, 7]");
  }
  EXPECT_EQ(SetFromText(layers, "[5, -1]", "test").message(), "test: mesh.pp_layers should be at least 0, but is -1");
  EXPECT_EQ(SetFromText(layers, "5,,7", "test").message(), "test: mesh.pp_layers should be a whole number, but is ''");
  EXPECT_FALSE(SetFromText(layers, "{a: 2}", "test").ok());
  EXPECT_EQ(ParseRunConfig("mesh: {pp: 2, pp_layers: [3, 5]}", "run.yaml")->mesh.pp_layers, (IntList{3, 5}));
  EXPECT_EQ(ParseRunConfig("watch: {idle_seconds: 60}", "run.yaml")->watch.idle_seconds, 60);
  EXPECT_HAS(ParseRunConfig("watch: {busy_seconds: 0}", "run.yaml").status().message(), "should be at least 1");
}

// Every option can be changed, and the change shows in the printed
// text: no two options share a variable, and every one has a variable.
TEST(RunOptions, EveryOptionHasItsOwnVariable) {
  RunConfig names;
  const OptionSet table = RunOptions(names);
  std::set<std::string> seen;
  for (const OptionGroup& group : table.groups()) {
    for (const Option& option : group.options) {
      EXPECT_TRUE(seen.insert(option.name).second) << option.name << " is listed twice";
      EXPECT_FALSE(option.help.empty()) << option.name;
      RunConfig config;
      const OptionSet options = RunOptions(config);
      const Option& target = *options.Find(option.name);
      const std::string before = ValueAsYaml(target);
      bool changed = false;
      for (const char* value : {"3",
                                "0.5",
                                "true",
                                "false",
                                "f32",
                                "cpu",
                                "full",
                                "linear",
                                "cosine",
                                "block",
                                "2d",
                                "gpipe",
                                "step",
                                "rows",
                                "weights",
                                "host",
                                "sgd",
                                "int8",
                                "cast",
                                "dpo",
                                "hinge",
                                "0.25",
                                "-0.5",
                                "{a: 2}",
                                "[[a, \"-\"]]",
                                "epoch",
                                "text=a",
                                "last",
                                "drop",
                                "user=a",
                                "{modules: a, weight_decay: 2}"}) {
        changed = changed || (SetFromText(target, value, "test").ok() && ValueAsYaml(target) != before);
      }
      EXPECT_TRUE(changed) << option.name;
      const auto lines = [](const std::string& text) {
        std::multiset<std::string> out;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) out.insert(line);
        return out;
      };
      std::vector<std::string> difference;
      const auto now = lines(PrintRunConfig(config)), then = lines(PrintRunConfig(RunConfig()));
      std::set_difference(now.begin(), now.end(), then.begin(), then.end(), std::back_inserter(difference));
      // A section or group of options begins.
      std::erase_if(difference,
                    [](const std::string& line) { return line.empty() || line[0] == '#' || line.ends_with(':'); });
      EXPECT_EQ(difference.size(), 1u) << option.name;
    }
  }
  EXPECT_GE(seen.size(), 50u);
}

TEST(RunOptions, HelpNamesEveryOptionWithItsDefault) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const std::string help = HelpText("usage: temper train\n", options);
  for (const OptionGroup& group : options.groups()) {
    EXPECT_HAS(help, "\n" + group.title + ":\n");
    for (const Option& option : group.options) {
      const bool on = std::holds_alternative<bool*>(option.target) && *std::get<bool*>(option.target);
      EXPECT_HAS(help, (on ? "  --[no-]" : "  --") + option.name);
    }
  }
  EXPECT_HAS(help, "(default: 2e-4 for LoRA, 2e-5 for full)");
  EXPECT_HAS(help, "--lora.r N");
  std::istringstream in(help);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 120u) << line;
  // On a narrow terminal too, but for words and choices that are longer than it.
  std::istringstream narrow(
      HelpText("usage: temper train [RUN.yaml] --model FOLDER --data FILE --output_dir FOLDER\n\n"
               "Every key of the YAML file is also an option.\n",
               options, 50));
  size_t lines = 0;
  for (std::string line; std::getline(narrow, line); ++lines) {
    const bool syntax = line.starts_with("  --") || line.find('|') != line.npos;
    if (!syntax) EXPECT_LE(line.size(), 50u) << line;
  }
  EXPECT_GT(lines, 400u);
}

TEST(RunOptions, EveryOptionSaysWhatAResumedRunMayDoWithIt) {
  RunConfig a, b;
  b.output.output_dir = "elsewhere";
  b.machine.recompute = Recompute::kBlock;
  b.watch.idle_seconds = 60;
  b.batch.gradient_accumulation_steps = 2;
  b.output.save_steps = 3;
  b.machine.seed = 1;
  b.lora.r = 2;
  const auto of = [&](OnResume kind) {
    std::string text;
    for (const OptionDifference& d : Differences(a, b, kind)) text += d.name + " " + d.a + " " + d.b + "; ";
    return text;
  };
  EXPECT_EQ(of(OnResume::kSame), "lora.r 16 2; seed 42 1; ");
  EXPECT_EQ(of(OnResume::kGoesOn), "gradient_accumulation_steps 8 2; save_steps 500 3; ");
  EXPECT_EQ(of(OnResume::kFree), "output_dir null elsewhere; memory.recompute auto block; watch.idle_seconds 15 60; ");
}

// Mutations of a valid file: any bytes give an answer and no crash.
TEST(RunOptions, SurvivesAnyBytes) {
  const std::string text = PrintRunConfig(RunConfig());
  uint32_t state = 12345;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u, state >> 8; };
  int accepted = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bad = text;
    for (int i = 0; i < 3; ++i) bad[next() % bad.size()] = static_cast<char>(next());
    accepted += ParseRunConfig(bad, "fuzz").ok();
  }
  EXPECT_LT(accepted, 500);
}

}  // namespace
}  // namespace temper::run_options_test

// How far is the planner's step time from the measured one? For configurations that calibration never saw (calibration
// times kernels, no step), `temper plan --cluster this --json` and `temper train` are run one after the other; the
// measured figure is the median of the steps after the first two. A round goes through all configurations, so that what
// slows the machine for a minute does not fall on one of them, and calibrates before every few. Shared machines run at
// another speed from minute to minute; steps are kept of minutes in which products are as fast, before and after, as
// when it was calibrated, or as nearly so as a few tries find. A configuration's ratio is the median of its rounds.
//   bench/prediction [--steps 7] [--rounds 3] [--work FOLDER]
// Replaces this machine's calibration. A round takes ten minutes on an idle machine of 2 cores, more on one that
// wanders.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/products/gemm_peak.h"
#include "base/env.h"
#include "base/philox.h"
#include "base/project_folder_for_test.h"
#include "format/json.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

struct Model {
  const char* name;
  int hidden, ffn, blocks, heads, kv_heads;
};
constexpr Model kModels[] = {
    {"wide", 1024, 2816, 3, 16, 4}, {"mid", 768, 2048, 5, 12, 4}, {"slim", 512, 1408, 8, 8, 8}};

struct Case {
  const char* name;
  int model;
  const char* options;
};
constexpr Case kCases[] = {
    {"full bf16, rows of 512", 0, "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 4"},
    {"full bf16, rows of 2048", 0, "--method full --dtype bf16 --max_seq_len 2048 --per_device_train_batch_size 1"},
    {"full f32, rows of 512", 1, "--method full --dtype f32 --max_seq_len 512 --per_device_train_batch_size 2"},
    {"full bf16, recompute", 1,
     "--method full --dtype bf16 --max_seq_len 1024 --per_device_train_batch_size 2 --memory.recompute block"},
    {"full bf16, 4 micro-batches", 2,
     "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 1 --gradient_accumulation_steps 4"},
    {"lora r=8 bf16, rows of 512", 0, "--dtype bf16 --lora.r 8 --max_seq_len 512 --per_device_train_batch_size 4"},
    {"lora r=8 bf16, rows of 2048", 1, "--dtype bf16 --lora.r 8 --max_seq_len 2048 --per_device_train_batch_size 1"},
    {"lora r=32 bf16, rows of 256", 2, "--dtype bf16 --lora.r 32 --max_seq_len 256 --per_device_train_batch_size 4"},
    {"lora r=16 f32, rows of 1024", 2, "--dtype f32 --lora.r 16 --max_seq_len 1024 --per_device_train_batch_size 1"},
    {"lora r=8 bf16, recompute", 1,
     "--dtype bf16 --lora.r 8 --max_seq_len 1024 --per_device_train_batch_size 2 --memory.recompute block"},
    {"full bf16, 2 ranks fsdp", 0,
     "--nprocs 2 --mesh fsdp=2 --method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 2"},
    {"full bf16, 2 ranks dp", 2,
     "--nprocs 2 --mesh dp=2 --method full --dtype bf16 --max_seq_len 1024 --per_device_train_batch_size 1"},
    {"lora r=8 bf16, 2 ranks fsdp", 1,
     "--nprocs 2 --mesh fsdp=2 --dtype bf16 --lora.r 8 --max_seq_len 1024 --per_device_train_batch_size 1"},
    {"lora r=8 bf16, 2 ranks tp", 0,
     "--nprocs 2 --mesh tp=2 --dtype bf16 --lora.r 8 --max_seq_len 1024 --per_device_train_batch_size 2"},
    {"full bf16, all at the host", 1,
     "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 4 --memory.tiers host"},
    {"full bf16, states on the disk", 1,
     "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 4 --memory.optimizer disk"},
    {"lora r=8 bf16, weights from disk", 0,
     "--dtype bf16 --lora.r 8 --max_seq_len 512 --per_device_train_batch_size 4 --memory.weights disk"},
    {"full bf16, device of 400 MiB", 1,
     "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 4 --memory.device 400MiB"},
    {"full bf16, device of 120 MiB", 1,
     "--method full --dtype bf16 --max_seq_len 512 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 "
     "--memory.device 120MiB"},
};

// Calibrating takes a minute, the steps of a configuration about a quarter of one.
constexpr size_t kCasesPerCalibration = 6;

constexpr double kSameSpeed = 0.05;
constexpr int kTries = 4;

// Of one configuration, one of each per round; seconds. `off`: how far the machine's speed was from that of
// calibration.
struct Rounds {
  std::vector<double> predicted, measured, ratio, off;
};

void Write(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  TEMPER_CHECK(file.good()) << path.string();
}

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json Parse(const std::string& text, const std::string& where) {
  const Result<Json> json = ParseJson(text, where);
  TEMPER_CHECK(json.ok()) << json.status().message();
  return *json;
}

// The example's tokenizer and a configuration of that size.
void WriteModel(const fs::path& folder, const Model& m) {
  const fs::path example = fs::path(kProjectFolder) / "examples/plain/model";
  fs::create_directories(folder);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    fs::copy_file(example / file, folder / file, fs::copy_options::overwrite_existing);
  }
  Json config = Parse(Read(example / "config.json"), "config.json");
  config["hidden_size"] = m.hidden;
  config["intermediate_size"] = m.ffn;
  config["num_hidden_layers"] = m.blocks;
  config["num_attention_heads"] = m.heads;
  config["num_key_value_heads"] = m.kv_heads;
  config["head_dim"] = m.hidden / m.heads;
  config["max_position_embeddings"] = 4096;
  Write(folder / "config.json", config.dump(2));
}

// Documents longer than any row: every row is one document, as the planner takes it.
void WriteData(const fs::path& path) {
  std::string text;
  for (uint64_t document = 0; document < 96; ++document) {
    text += "{\"text\": \"";
    for (uint64_t word = 0; word < 4000; ++word) {
      text += fmt::format("{}w{:x}", word ? " " : "", HashName(fmt::format("{} {}", document, word)) & 0xfff);
    }
    text += "\"}\n";
  }
  Write(path, text);
}

int Run(const std::string& command) {
  return std::system(command.c_str());
}

double Median(std::vector<double> v) {
  TEMPER_CHECK(!v.empty());
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Seconds of the steps after the first two.
std::vector<double> MeasuredSteps(const fs::path& metrics) {
  std::ifstream file(metrics);
  std::vector<double> ends, steps;
  for (std::string line; std::getline(file, line);) {
    const Json row = Parse(line, metrics.string());
    if (row.contains("loss")) ends.push_back(row["seconds"].get<double>());
  }
  for (size_t i = 2; i < ends.size(); ++i) steps.push_back(ends[i] - ends[i - 1]);
  return steps;
}

void Main(int argc, char** argv) {
  int steps = 7, rounds = 3;
  fs::path work = fs::temp_directory_path() / "temper_prediction";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--steps") steps = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--work") work = argv[i + 1];
  }
  const fs::path temper = fs::canonical("/proc/self/exe").parent_path().parent_path() / "temper";
  fs::create_directories(work);
  WriteData(work / "text.jsonl");
  const fs::path log = work / "log", plan = work / "plan.json";
  const auto run = [&](const std::string& arguments, const fs::path& to) {
    TEMPER_CHECK(Run(fmt::format("{} {} > {} 2> {}", temper.string(), arguments, to.string(), log.string())) == 0)
        << Read(log);
  };
  const auto train = [&](const std::string& options, const fs::path& out) {
    run(fmt::format("train {} --data {} --output_dir {} --overwrite --save_steps 0 --tensorboard false", options,
                    (work / "text.jsonl").string(), out.string()),
        work / "stdout");
  };
  for (const Model& m : kModels) {
    const fs::path shape = work / "shape";
    WriteModel(shape, m);
    train(fmt::format("--model {} --from_scratch --method full --max_steps 1 --max_seq_len 64", shape.string()),
          work / m.name);
  }

  const auto options_of = [&](const Case& c) {
    std::string options = fmt::format("--model {} {} --memory.disk {}", (work / kModels[c.model].name).string(),
                                      c.options, (work / "spill").string());
    if (options.find("gradient_accumulation_steps") == std::string::npos) options += " --gradient_accumulation_steps 1";
    return options;
  };
  fs::create_directories(work / "spill");
  const auto speed = [] {
    return MeasureProductRate(DType::kF32, static_cast<int>(std::thread::hardware_concurrency()), DetectIsa());
  };
  std::vector<Rounds> found(std::size(kCases));
  for (int round = 0; round < rounds; ++round) {
    double calibrated = 0;
    for (size_t i = 0; i < std::size(kCases); ++i) {
      for (int left = i % kCasesPerCalibration == 0 ? kTries : 0; left > 0; --left) {
        calibrated = speed();
        run("doctor --calibrate", work / "stdout");
        if (std::abs(speed() / calibrated - 1) <= kSameSpeed) break;
      }
      run(fmt::format("plan {} --cluster this --json", options_of(kCases[i])), plan);
      const double predicted = Parse(Read(plan), "plan")["step_seconds"].get<double>();
      double measured = 0, off = 0, before = speed();
      for (int left = kTries; left > 0; --left) {
        train(fmt::format("{} --max_steps {}", options_of(kCases[i]), steps), work / "out");
        const double after = speed();
        const double strayed = std::max(std::abs(before / calibrated - 1), std::abs(after / calibrated - 1));
        if (measured == 0 || strayed < off) {
          measured = Median(MeasuredSteps(work / "out" / "metrics.jsonl"));
          off = strayed;
        }
        if (off <= kSameSpeed) break;
        before = after;
      }
      found[i].predicted.push_back(predicted);
      found[i].measured.push_back(measured);
      found[i].ratio.push_back(predicted / measured);
      found[i].off.push_back(off);
      fmt::print(stderr, "{:<32} {:>8.2f}   speed within {:.0f} %\n", kCases[i].name, predicted / measured, 100 * off);
    }
  }
  std::vector<double> errors;
  fmt::print("{:<32} {:>10} {:>10} {:>8}   of the rounds   speed within\n", "configuration", "predicted", "measured",
             "ratio");
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const double ratio = Median(found[i].ratio);
    errors.push_back(std::abs(ratio - 1));
    fmt::print("{:<32} {:>7.0f} ms {:>7.0f} ms {:>8.2f}   {:.2f} to {:.2f}   {:>8.0f} %\n", kCases[i].name,
               Median(found[i].predicted) * 1e3, Median(found[i].measured) * 1e3, ratio,
               *std::min_element(found[i].ratio.begin(), found[i].ratio.end()),
               *std::max_element(found[i].ratio.begin(), found[i].ratio.end()), 100 * Median(found[i].off));
  }
  std::sort(errors.begin(), errors.end());
  fmt::print("{} of {} within 10 %; median error {:.1f} %, largest {:.1f} %\n",
             std::count_if(errors.begin(), errors.end(), [](double e) { return e <= 0.10; }), errors.size(),
             100 * errors[errors.size() / 2], 100 * errors.back());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  temper::Main(argc, argv);
}

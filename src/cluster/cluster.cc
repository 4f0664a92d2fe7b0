#include "cluster/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "format/quoted.h"
#include "graph/named_ops.h"

namespace temper {

Bytes Cluster::MemoryOf(int ranks) const {
  return (shared ? memory / std::max(ranks, 1) : memory) - reserve;
}

Bytes Cluster::HostMemoryOf(int ranks) const {
  return shared ? Bytes{} : host_memory / std::max(ranks, 1);
}

RankLinks Cluster::RankLinksOf(int ranks) const {
  return {.inside = ShareOf(ranks).link, .between = between_hosts, .ranks_per_host = devices_per_host};
}

LinkRates Cluster::LinksOf(int ranks) const {
  // Defaults for missing figures: a copy in one memory reads and writes; PCIe 3 x16; a SATA disk.
  constexpr double kPcie3 = 12e9, kSata = 0.5e9;
  const Share& share = ShareOf(ranks);
  const OpRate& copy = share.rates.Of(Op::kCast, OpClass::kMemory, DType::kF32);
  const double unsaid = share.copies > 0         ? share.copies
                        : shared && copy.known() ? copy.BytesPerSecond(MiB(64)) / 2
                                                 : kPcie3;
  const auto or_else = [](double said, double otherwise) { return said > 0 ? said : otherwise; };
  return {.host_to_device = or_else(to_device, unsaid),
          .device_to_host = or_else(from_device, unsaid),
          .disk_read = or_else(disk_read, kSata) / std::max(ranks, 1),
          .disk_write = or_else(disk_write, kSata) / std::max(ranks, 1),
          .latency = {20e-6},
          .copies = share.beside_copies,
          .disk = share.beside_disk};
}

DeviceRates Cluster::HostRatesOf(int ranks) const {
  if (shared) return ShareOf(ranks).rates;
  DeviceRates rates = TypicalHost();
  if (host_bandwidth <= 0) return rates;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    OpRate rate = rates.Of(Op::kAdd, OpClass::kMemory, dtype);
    rate.bandwidth = {{KiB(1), host_bandwidth / std::max(ranks, 1)}};
    rates.SetClass(OpClass::kMemory, dtype, std::move(rate));
  }
  return rates;
}

const Cluster::Share& Cluster::ShareOf(int ranks) const {
  TEMPER_CHECK(!shares.empty()) << "cluster " << name << " states no rates";
  const auto it = shares.lower_bound(shared ? ranks : 1);
  return it == shares.end() ? shares.rbegin()->second : it->second;
}

namespace {

// "T4" and "RTX4090" name T4-16 and RTX4090-24, and so does "4090".
bool NamesCard(std::string_view name, std::string_view card) {
  const std::string stem = std::string(name) + "-";
  return card.starts_with(stem) || (!name.empty() && card.starts_with("RTX" + stem));
}

// The preset of that name, or the only one whose name begins so: "L40S" names L40S-48. A file of the user's has
// precedence over the second. nullptr: it names none.
const ClusterPreset* PresetOf(Env& env, std::string_view name) {
  const ClusterPreset* longer = nullptr;
  int matches = 0;
  for (const ClusterPreset& preset : ClusterPresets()) {
    if (preset.name == name) return &preset;
    if (!NamesCard(name, preset.name)) continue;
    longer = &preset;
    ++matches;
  }
  return matches == 1 && !env.IsFile(std::string(name)) ? longer : nullptr;
}

// "4xRTX4090": several of a card in one host, with what is the host's as the preset of that card has it.
struct SeveralCards {
  int count;
  const ClusterPreset* preset;
  std::string name;  // "4xRTX4090-24"
};

// The preset of a single host with such cards, one with a link between them first.
std::optional<SeveralCards> SeveralOf(std::string_view name) {
  const auto split = [](std::string_view text) -> std::pair<int, std::string_view> {
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end == text.data() + text.size() || *end != 'x') return {0, text};
    return {count, text.substr(static_cast<size_t>(end - text.data()) + 1)};
  };
  const auto [count, card] = split(name);
  if (count < 1 || count > 64 || card.empty()) return std::nullopt;
  std::optional<SeveralCards> found;
  for (const ClusterPreset& preset : ClusterPresets()) {
    const std::string_view of_preset = split(preset.name).second;
    if (split(of_preset).first > 0) continue;  // several hosts
    if (of_preset != card && !NamesCard(card, of_preset)) continue;
    const bool linked = preset.text.find("\n  link:") != preset.text.npos;
    if (found && !linked) continue;
    found = {count, &preset, fmt::format("{}x{}", count, of_preset)};
  }
  return found;
}

// The preset's text for so many devices. A host without a link is assumed to move bytes through its memory, where each
// is written and read: what that memory moves, and no more than what a device copies.
std::string TextOf(const SeveralCards& several) {
  const std::string preset(several.preset->text);
  const Result<Cluster> parsed = ParseCluster(preset, several.name);
  TEMPER_CHECK(parsed.ok()) << parsed.status().message();
  const Cluster& one = *parsed;
  const bool linked = one.ShareOf(1).link.bytes_per_second > 0;
  std::istringstream lines(preset);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("name:")) {
      line = fmt::format("name: {}{}", several.name, linked || several.count == 1 ? "" : ", link assumed");
    }
    if (line.starts_with("  devices:")) line = fmt::format("  devices: {}", several.count);
    text += line + '\n';
  }
  if (linked || several.count == 1) return text;
  const double through_memory = one.host_bandwidth / (2 * several.count);
  return text +
         fmt::format("  link: {{bandwidth: {:.3g} GB/s, latency: 20 us}}  # assumed: through the host's memory\n",
                     std::min(through_memory, std::min(one.to_device, one.from_device)) * 1e-9);
}

}  // namespace

Result<std::string> ReadCluster(Env& env, const std::string& name) {
  if (const ClusterPreset* const preset = PresetOf(env, name)) return std::string(preset->text);
  if (env.IsFile(name)) return ReadTextFile(env, name, MiB(1));
  if (const auto several = SeveralOf(name)) return TextOf(*several);
  std::string known;
  for (const ClusterPreset& preset : ClusterPresets())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", preset.name);
  return NotFound(
      fmt::format("cluster {} is neither a file nor a preset. Presets: this, {}; and several of a card, as in "
                  "4xRTX4090",
                  Quoted(name), known));
}

Result<Cluster> OpenCluster(Env& env, const std::string& name) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadCluster(env, name));
  return ParseCluster(text, PresetOf(env, name) != nullptr || !env.IsFile(name) ? "cluster " + name : name);
}

}  // namespace temper

// The text form of a cluster: reading and printing. Format: docs/formats/cluster.md.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/quantity.h"
#include "cluster/cluster.h"
#include "format/quoted.h"
#include "format/yaml.h"
#include "graph/named_ops.h"

namespace temper {
namespace {

// One mapping of the document. Keeps the first error; afterwards all lookups return their fallback. Keys that were
// never read are an error (Done).
class Section {
 public:
  Section(const OrderedJson& value, std::string pointer, const YamlDocument& document, const std::string& where,
          Status* error)
      : value_(value), pointer_(std::move(pointer)), document_(document), where_(where), error_(*error) {
    if (!value.is_object()) Fail("", "should be a mapping");
  }

  double Quantity(const char* key, const char* unit, std::optional<double> fallback = std::nullopt) {
    const OrderedJson* found = Find(key);
    if (found == nullptr) return Missing(key, fallback);
    if (!found->is_string()) {
      Fail(key, fmt::format("{} needs a unit, such as '1.5 G{}'", key, unit));
      return 0;
    }
    const Result<double> number = ParseQuantity(found->get<std::string>(), unit);
    if (!number.ok()) Fail(key, fmt::format("{}: {}", key, number.status().message()));
    return number.ok() ? *number : 0;
  }
  Bytes Size(const char* key, std::optional<double> fallback = std::nullopt) {
    const double bytes = Quantity(key, "B", fallback);
    if (bytes > 0x1p62) Fail(key, fmt::format("{} is more than any memory", key));
    return {bytes > 0x1p62 ? 0 : static_cast<int64_t>(bytes)};
  }
  // A number between 0 and `most`, without a unit.
  double Number(const char* key, double most, std::optional<double> fallback = std::nullopt) {
    const OrderedJson* found = Find(key);
    if (found == nullptr) return Missing(key, fallback);
    if (!found->is_number() || !(found->get<double>() > 0) || found->get<double>() > most) {
      Fail(key, fmt::format("{} should be a number above 0 and at most {}", key, most));
      return most;
    }
    return found->get<double>();
  }
  int Count(const char* key, std::optional<double> fallback = std::nullopt) {
    const double number = Number(key, 1 << 20, fallback);
    if (number != static_cast<int>(number)) Fail(key, fmt::format("{} should be a whole number", key));
    return static_cast<int>(number);
  }
  bool Flag(const char* key) {
    const OrderedJson* found = Find(key);
    if (found == nullptr) return false;
    if (!found->is_boolean()) Fail(key, fmt::format("{} should be true or false", key));
    return found->is_boolean() && found->get<bool>();
  }
  std::string Text(const char* key, std::optional<std::string> fallback = std::nullopt) {
    const OrderedJson* found = Find(key);
    if (found == nullptr) {
      if (!fallback) Fail("", fmt::format("'{}' is missing", key));
      return fallback.value_or("");
    }
    if (!found->is_string()) Fail(key, fmt::format("{} should be a text", key));
    return found->is_string() ? found->get<std::string>() : "";
  }
  // nullopt if it is absent.
  std::optional<Section> Child(const char* key) {
    const OrderedJson* found = Find(key);
    if (found == nullptr) return std::nullopt;
    return Section(*found, pointer_ + "/" + key, document_, where_, &error_);
  }
  std::vector<Section> Children(const char* key) {
    std::vector<Section> children;
    const OrderedJson* found = Find(key);
    if (found == nullptr) return children;
    if (!found->is_array()) Fail(key, fmt::format("{} should be a list", key));
    for (size_t i = 0; found->is_array() && i < found->size(); ++i) {
      children.emplace_back((*found)[i], fmt::format("{}/{}/{}", pointer_, key, i), document_, where_, &error_);
    }
    return children;
  }

  void Fail(const std::string& key, const std::string& what) {
    if (!error_.ok()) return;
    const int line = document_.LineOf(key.empty() ? pointer_ : pointer_ + "/" + key);
    error_ = InvalidArgument(line > 0 ? fmt::format("{} line {}: {}", where_, line, what)
                                      : fmt::format("{}: {}", where_, what));
  }
  void Done() {
    if (!value_.is_object()) return;
    for (const auto& [key, value] : value_.items()) {
      if (asked_.contains(key)) continue;
      std::string known;
      for (const std::string& k : asked_) known += (known.empty() ? "" : ", ") + k;
      Fail(key, fmt::format("unknown key {}; known: {}", Quoted(key), known));
    }
  }
  bool ok() const { return error_.ok(); }

 private:
  const OrderedJson* Find(const char* key) {
    asked_.insert(key);
    if (!error_.ok() || !value_.is_object()) return nullptr;
    const auto it = value_.find(key);
    return it == value_.end() || it->is_null() ? nullptr : &*it;
  }
  double Missing(const char* key, std::optional<double> fallback) {
    if (!fallback) Fail("", fmt::format("'{}' is missing", key));
    return fallback.value_or(1);
  }

  const OrderedJson& value_;
  const std::string pointer_;
  const YamlDocument& document_;
  const std::string& where_;
  Status& error_;
  std::set<std::string> asked_;
};

Link ReadLink(std::optional<Section> section) {
  if (!section) return {};
  Link link{.bytes_per_second = section->Quantity("bandwidth", "B/s"), .latency = {section->Quantity("latency", "s")}};
  if (link.bytes_per_second <= 0) section->Fail("bandwidth", "bandwidth should be above 0");
  section->Done();
  return link;
}

// Rates stated by class: a peak, and the fraction of it that kernels of the class reach. `attention_backward` is a
// share of the peak in flops that kernels spend; where it is absent, those that are needed run at `attention`.
Cluster::Share ReadStatedRates(Section& device) {
  Cluster::Share share;
  DeviceRates& rates = share.rates;
  const Seconds launch{device.Quantity("launch", "s")};
  const double bandwidth = device.Quantity("bandwidth", "B/s") * device.Number("bandwidth_share", 1);
  const OpRate memory{.launch = launch, .bandwidth = {{Bytes{1}, bandwidth}}};
  std::optional<Section> f32 = device.Child("f32"), bf16 = device.Child("bf16");
  if (!f32)
    device.Fail("", "'f32' is missing: the f32 peak, and the fractions of it that products and attention reach");
  const auto read = [&](Section& section, DType dtype) {
    const double peak = section.Quantity("peak", "FLOP/s");
    if (peak <= 0) section.Fail("peak", "peak should be above 0");
    const double products = section.Number("products", 1), attention = section.Number("attention", 1);
    const double backward = section.Number("attention_backward", 1, attention / kNeededOfAttentionBackward);
    section.Done();
    for (const OpClass c : {OpClass::kProduct, OpClass::kNarrow, OpClass::kAttention, OpClass::kMemory}) {
      OpRate rate = memory;
      if (c == OpClass::kProduct || c == OpClass::kNarrow) rate.flops_per_second = peak * products;
      if (c == OpClass::kAttention) rate.flops_per_second = peak * attention;
      rates.SetClass(c, dtype, rate);
    }
    OpRate rate = memory;
    rate.flops_per_second = peak * backward * kNeededOfAttentionBackward;
    rates.SetOp(Op::kAttentionBackward, OpClass::kAttention, dtype, rate);
    return peak;
  };
  if (f32) {
    share.f32_peak = read(*f32, DType::kF32);
    if (bf16) {
      share.bf16_peak = read(*bf16, DType::kBF16);
    } else {
      // Stored in bf16, computed in f32.
      for (const OpClass c : {OpClass::kProduct, OpClass::kNarrow, OpClass::kAttention, OpClass::kMemory}) {
        rates.SetClass(c, DType::kBF16, rates.Of(Op::kAdd, c, DType::kF32));
      }
      rates.SetOp(Op::kAttentionBackward, OpClass::kAttention, DType::kBF16,
                  rates.Of(Op::kAttentionBackward, OpClass::kAttention, DType::kF32));
    }
  }
  if (std::optional<Section> tile = device.Child("tile")) {
    rates.set_tile({tile->Count("rows"), tile->Count("columns"), tile->Count("units")});
    tile->Done();
  }
  return share;
}

constexpr std::array<std::pair<const char*, OpClass>, 4> kClassNames = {{{"product", OpClass::kProduct},
                                                                         {"narrow", OpClass::kNarrow},
                                                                         {"attention", OpClass::kAttention},
                                                                         {"memory", OpClass::kMemory}}};

void ReadMeasuredRate(Section& entry, DeviceRates* rates) {
  const std::string op_name = entry.Text("op"), class_name = entry.Text("class"), dtype_name = entry.Text("dtype");
  OpRate rate{.launch = {entry.Quantity("launch", "s")}, .flops_per_second = entry.Quantity("rate", "FLOP/s", 0)};
  Bytes before{0};
  for (Section& point : entry.Children("bandwidth")) {
    rate.bandwidth.push_back({point.Size("of"), point.Quantity("is", "B/s")});
    if (rate.bandwidth.back().bytes <= before || rate.bandwidth.back().bytes_per_second <= 0) {
      point.Fail("of", "sizes should be above 0 and ascending, and bandwidths above 0");
    }
    before = rate.bandwidth.back().bytes;
    point.Done();
  }
  if (rate.bandwidth.empty()) entry.Fail("", "'bandwidth' is missing");
  entry.Done();
  const auto op = ParseOp(op_name);
  const auto found = std::find_if(kClassNames.begin(), kClassNames.end(),
                                  [&](const auto& known) { return class_name == known.first; });
  const Result<DType> dtype = ParseDType(dtype_name);
  if (!op || IsCollective(*op)) entry.Fail("op", fmt::format("{} is not an op of a device", Quoted(op_name)));
  if (found == kClassNames.end()) entry.Fail("class", fmt::format("{} is not a class of ops", Quoted(class_name)));
  if (!dtype.ok()) entry.Fail("dtype", dtype.status().message());
  if (entry.ok()) rates->SetOp(*op, found->second, *dtype, std::move(rate));
}

Contention ReadContention(Section& section) {
  constexpr double kMost = 1e3;  // relative to the time alone
  const Contention contention{.slows = std::max(section.Number("kernels", kMost) - 1, 0.0),
                              .slowed = std::max(section.Number("moves", kMost) - 1, 0.0)};
  section.Done();
  return contention;
}

void ReadMeasured(Section& root, Cluster* cluster) {
  for (Section& section : root.Children("measured")) {
    const int ranks = section.Count("ranks");
    Cluster::Share& share = cluster->shares[ranks];
    share.f32_peak = section.Quantity("f32_peak", "FLOP/s");
    share.bf16_peak = section.Quantity("bf16_peak", "FLOP/s", 0);
    share.link = ReadLink(section.Child("link"));
    if (std::optional<Section> copies = section.Child("copies")) {
      share.copies = copies->Quantity("bandwidth", "B/s");
      if (share.copies <= 0) copies->Fail("bandwidth", "bandwidth should be above 0");
      share.beside_copies = ReadContention(*copies);
    }
    if (std::optional<Section> disk = section.Child("disk")) share.beside_disk = ReadContention(*disk);
    for (Section& entry : section.Children("rates")) ReadMeasuredRate(entry, &share.rates);
    share.rates.FillClasses();
    section.Done();
  }
  if (cluster->shares.empty()) root.Fail("", "'measured' is missing: run `temper doctor --calibrate` again");
}

}  // namespace

Result<Cluster> ParseCluster(std::string_view text, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const YamlDocument document, ParseYaml(text, where));
  Status error;
  Cluster cluster;
  Section root(document.value, "", document, where, &error);
  cluster.name = root.Text("name");
  cluster.date = root.Text("date", "");
  cluster.other_load = root.Text("other_load", "");
  cluster.hosts = root.Count("hosts", 1);
  cluster.shared = root.Flag("shared");
  if (std::optional<Section> device = root.Child("device")) {
    cluster.device = device->Text("name");
    cluster.compute_capability = device->Number("compute_capability", 100, 0);
    cluster.memory = device->Size("memory");
    cluster.reserve = device->Size("reserve", 0);
    if (!cluster.shared) cluster.shares[1] = ReadStatedRates(*device);
    device->Done();
  } else {
    root.Fail("", "'device' is missing");
  }
  if (std::optional<Section> host = root.Child("host")) {
    cluster.devices_per_host = host->Count("devices", 1);
    cluster.host_memory = host->Size("memory", 0);
    cluster.host_bandwidth = host->Quantity("bandwidth", "B/s", 0);
    if (std::optional<Section> copies = host->Child("copies")) {
      cluster.to_device = copies->Quantity("to_device", "B/s");
      cluster.from_device = copies->Quantity("from_device", "B/s");
      copies->Done();
    }
    if (std::optional<Section> disk = host->Child("disk")) {
      cluster.disk_read = disk->Quantity("read", "B/s");
      cluster.disk_write = disk->Quantity("write", "B/s");
      disk->Done();
    }
    if (!cluster.shared) {
      Link& link = cluster.shares[1].link = ReadLink(host->Child("link"));
      if (cluster.devices_per_host > 1 && link.bytes_per_second <= 0) {
        host->Fail("", "'link' is missing: the link between devices of a host");
      }
    }
    host->Done();
  }
  cluster.between_hosts = ReadLink(root.Child("network"));
  if (cluster.hosts > 1 && cluster.between_hosts.bytes_per_second <= 0) {
    root.Fail("", "'network' is missing: the link between hosts");
  }
  if (std::optional<Section> price = root.Child("price")) {
    cluster.price_per_device_hour = price->Number("per_device_hour", 1e6);
    cluster.currency = price->Text("currency", "USD");
    price->Done();
  }
  if (cluster.shared) ReadMeasured(root, &cluster);
  root.Done();
  if (!error.ok()) return error;
  return cluster;
}

std::string PrintCluster(const Cluster& c) {
  TEMPER_CHECK(c.shared) << "only a measured cluster is printed";
  std::string text = fmt::format(
      "# Measured by Temper.\nname: {}\n{}{}shared: true\ndevice: {{name: \"{}\", memory: {} B}}\n"
      "host:\n  devices: {}\n  memory: {} B\n",
      c.name, c.date.empty() ? "" : fmt::format("date: \"{}\"\n", c.date),
      c.other_load.empty() ? "" : fmt::format("other_load: \"{}\"\n", c.other_load), c.device, c.memory.v,
      c.devices_per_host, c.host_memory.v);
  if (c.to_device > 0) {
    text += fmt::format("  copies: {{to_device: {}, from_device: {}}}\n", PrintQuantity(c.to_device, "B/s"),
                        PrintQuantity(c.from_device, "B/s"));
  }
  if (c.disk_read > 0) {
    text += fmt::format("  disk: {{read: {}, write: {}}}\n", PrintQuantity(c.disk_read, "B/s"),
                        PrintQuantity(c.disk_write, "B/s"));
  }
  text += "measured:\n";
  for (const auto& [ranks, share] : c.shares) {
    text += fmt::format("  - ranks: {}\n    f32_peak: {}\n    bf16_peak: {}\n", ranks,
                        PrintQuantity(share.f32_peak, "FLOP/s"), PrintQuantity(share.bf16_peak, "FLOP/s"));
    if (share.link.bytes_per_second > 0) {
      text += fmt::format("    link: {{bandwidth: {}, latency: {}}}\n",
                          PrintQuantity(share.link.bytes_per_second, "B/s"), PrintQuantity(share.link.latency.v, "s"));
    }
    if (share.copies > 0) {
      const auto times = [](const Contention& c) {
        return fmt::format("kernels: {:.3f}, moves: {:.3f}", 1 + c.slows, 1 + c.slowed);
      };
      text += fmt::format("    copies: {{bandwidth: {}, {}}}\n    disk: {{{}}}\n", PrintQuantity(share.copies, "B/s"),
                          times(share.beside_copies), times(share.beside_disk));
    }
    text += "    rates:\n";
    for (int op = 0; op < NumOps(); ++op) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const auto& [class_name, op_class] : kClassNames) {
          const OpRate* rate = share.rates.Own(static_cast<Op>(op), op_class, dtype);
          if (rate == nullptr) continue;
          text += fmt::format("      - {{op: {}, class: {}, dtype: {}, launch: {}, rate: {}, bandwidth: [",
                              ToString(static_cast<Op>(op)), class_name, ToString(dtype),
                              PrintQuantity(rate->launch.v, "s"), PrintQuantity(rate->flops_per_second, "FLOP/s"));
          for (const OpRate::Point& p : rate->bandwidth) {
            text += fmt::format("{}{{of: {} B, is: {}}}", &p == rate->bandwidth.data() ? "" : ", ", p.bytes.v,
                                PrintQuantity(p.bytes_per_second, "B/s"));
          }
          text += "]}\n";
        }
      }
    }
  }
  return text;
}

}  // namespace temper

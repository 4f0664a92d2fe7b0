#include "model/published_quantisation.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/pattern.h"
#include "format/quoted.h"
#include "tensor/int4_rows.h"

namespace temper {
namespace {

constexpr char kOriginals[] = "use the original weights, with base_dtype: nf4 or int8 for less memory";

Json At(const Json& object, std::string_view key) {
  const Json* const found = FindValue(object, key);
  return found == nullptr ? Json() : *found;
}

// Reads the keys of one configuration. Errors name the key and its value.
class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string_view method, const std::string& where)
      : config_(config), method_(method), where_(where) {}

  Json Of(std::string_view key) const { return At(config_, key); }

  Status Unread(std::string_view key, const Json& value, std::string_view read) const {
    return Unsupported(fmt::format("{}: quantization_config has {}: {}, but of {} models those with {} are read: {}",
                                   where_, key, DumpJson(value).substr(0, 60), method_, read, kOriginals));
  }
  // The value has to be this one, or missing.
  Status Must(std::string_view key, const Json& value) const {
    const Json found = Of(key);
    return found.is_null() || found == value ? OkStatus() : Unread(key, found, DumpJson(value));
  }
  Result<int64_t> Group(const Json& size) const {
    if (size.is_null() || size == -1) return int64_t{128};  // a row is one group
    const bool whole = size.is_number_integer() && size >= 32 && size <= int64_t{1} << 24;
    const int64_t group = whole ? size.get<int64_t>() : 0;
    if (HasInt4Groups(group)) return group;
    if (group > 0 && group % 128 == 0) return int64_t{128};
    return Unread("group_size", size, "32, 64, 128, multiples of 128 and -1");
  }

  // Names of modules under `key`; "re:" begins a pattern.
  Result<std::vector<std::string>> Names(std::string_view key) const {
    constexpr size_t kMost = 1 << 16;
    std::vector<std::string> names;
    const Json list = Of(key);
    if (list.is_null()) return names;
    if (!list.is_array() || list.size() > kMost) return Unread(key, list, "a list of modules");
    for (const Json& name : list) {
      if (!name.is_string()) return Unread(key, name, "names of modules");
      names.push_back(name.get<std::string>());
      if (!names.back().starts_with("re:")) continue;
      TEMPER_RETURN_IF_ERROR(Pattern::Compile(names.back().substr(3)).status().WithContext(where_));
    }
    return names;
  }

 private:
  const Json& config_;
  const std::string_view method_;
  const std::string& where_;
};

Result<PublishedQuantisation> ReadGptq(const ConfigReader& config) {
  PublishedQuantisation published;
  if (config.Of("bits") != 4) return config.Unread("bits", config.Of("bits"), "4");
  for (const char* key : {"checkpoint_format", "format"}) TEMPER_RETURN_IF_ERROR(config.Must(key, "gptq"));
  TEMPER_RETURN_IF_ERROR(config.Must("is_marlin_format", false));
  const Json modules = config.Of("modules_in_block_to_quantize"), dynamic = config.Of("dynamic");
  if (!modules.is_null()) return config.Unread("modules_in_block_to_quantize", modules, "null");
  if (!dynamic.is_null() && !dynamic.empty()) return config.Unread("dynamic", dynamic, "null");
  TEMPER_ASSIGN_OR_RETURN(const int64_t group, config.Group(config.Of("group_size")));
  if (config.Of("desc_act") != true) {
    published.format = Int4Groups(group);
  } else {
    published.note =
        "GPTQ with desc_act: the columns of a group are no neighbours, so weights are dequantised as they are read and "
        "take the memory of bf16; base_dtype: nf4 or int8 keeps them in less, with an error of its own";
  }
  return published;
}

Result<PublishedQuantisation> ReadAwq(const ConfigReader& config) {
  PublishedQuantisation published;
  const Json bits = config.Of(config.Of("bits").is_null() ? "w_bit" : "bits");
  if (bits != 4) return config.Unread("bits", bits, "4");
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    const Json packing = config.Of(key);
    if (!packing.is_null() && packing != "gemm" && packing != "GEMM") return config.Unread(key, packing, "\"gemm\"");
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t group,
                          config.Group(config.Of(config.Of("group_size").is_null() ? "q_group_size" : "group_size")));
  published.format = Int4Groups(group);
  TEMPER_ASSIGN_OR_RETURN(published.left, config.Names("modules_to_not_convert"));
  for (std::string& name : published.left) name = "re:.*\\Q" + name + "\\E";  // anywhere in a module's name
  return published;
}

Result<PublishedQuantisation> ReadCompressed(const ConfigReader& config, const Json& quantisation,
                                             const std::string& where) {
  PublishedQuantisation published;
  TEMPER_ASSIGN_OR_RETURN(published.left, config.Names("ignore"));
  TEMPER_RETURN_IF_ERROR(config.Must("quantization_status", "compressed"));
  const Json groups = At(quantisation, "config_groups"), sparsity = At(quantisation, "sparsity_config");
  const Json sparse = At(sparsity, "format");
  if (!sparse.is_null() && sparse != "dense") return config.Unread("sparsity_config", sparse, "\"dense\"");
  if (!groups.is_object() || groups.size() != 1) return config.Unread("config_groups", groups, "one group");
  const Json& group = *groups.begin();
  const Json targets = At(group, "targets"), weights = At(group, "weights");
  if (targets != Json::array({"Linear"})) return config.Unread("targets", targets, "[\"Linear\"]");
  const ConfigReader of_weights(weights, "compressed-tensors", where);
  Json format = At(quantisation, "format");
  if (format.is_null() || format == "mixed-precision") format = At(group, "format");
  const Json strategy = of_weights.Of("strategy");
  const bool by_row = strategy == "tensor" || strategy == "channel";
  const auto expect = [&](int bits, const char* type) -> Status {
    if (of_weights.Of("num_bits") != bits)
      return of_weights.Unread("num_bits", of_weights.Of("num_bits"), std::to_string(bits));
    return of_weights.Of("type") == type ? OkStatus() : of_weights.Unread("type", of_weights.Of("type"), type);
  };
  if (format == "pack-quantized") {
    TEMPER_RETURN_IF_ERROR(expect(4, "int"));
    if (strategy != "group" && strategy != "channel") {
      return of_weights.Unread("strategy", strategy, "\"group\" and \"channel\"");
    }
    TEMPER_ASSIGN_OR_RETURN(const int64_t size,
                            of_weights.Group(strategy == "group" ? of_weights.Of("group_size") : Json()));
    const Json order = of_weights.Of("actorder");
    // "weight" orders columns while they are quantised, and leaves groups of neighbours.
    if (order.is_null() || order == false || order == "weight" || order == "static") {
      published.format = Int4Groups(size);
    } else {
      published.note =
          "actorder: the columns of a group are no neighbours, so weights are dequantised as they are read and take "
          "the "
          "memory of bf16; base_dtype: nf4 or int8 keeps them in less, with an error of its own";
    }
    return published;
  }
  if (format == "float-quantized" || (format == "naive-quantized" && of_weights.Of("type") == "float")) {
    TEMPER_RETURN_IF_ERROR(expect(8, "float"));
    const bool blocks = strategy == "block" && of_weights.Of("block_structure") == Json::array({128, 128});
    if (!by_row && !blocks)
      return of_weights.Unread("strategy", strategy, "\"tensor\", \"channel\" and blocks of 128 x 128");
    published.format = *ParseElementFormat("fp8");
    return published;
  }
  if (format == "int-quantized" || format == "naive-quantized") {
    TEMPER_RETURN_IF_ERROR(expect(8, "int"));
    if (!by_row) return of_weights.Unread("strategy", strategy, "\"tensor\" and \"channel\"");
    TEMPER_RETURN_IF_ERROR(of_weights.Must("symmetric", true));
    published.format = ElementFormat::Int8Rows();
    return published;
  }
  return config.Unread("format", format, "pack-quantized, float-quantized, int-quantized and naive-quantized");
}

}  // namespace

std::vector<std::string> PublishedMethods() {
  return {"gptq (4 bits)", "awq (4 bits, gemm)", "compressed-tensors (int4, int8, FP8)", "bitsandbytes (int8)"};
}

Result<std::optional<PublishedQuantisation>> ReadPublished(const Json& quantisation, const std::string& where) {
  if (!quantisation.is_object()) return std::optional<PublishedQuantisation>();
  const Json method = At(quantisation, "quant_method");
  const auto given = [](Result<PublishedQuantisation> read) -> Result<std::optional<PublishedQuantisation>> {
    TEMPER_RETURN_IF_ERROR(read.status());
    return std::optional(*std::move(read));
  };
  if (method == "gptq") return given(ReadGptq({quantisation, "GPTQ", where}));
  if (method == "awq") return given(ReadAwq({quantisation, "AWQ", where}));
  if (method == "compressed-tensors") {
    return given(ReadCompressed({quantisation, "compressed-tensors", where}, quantisation, where));
  }
  const auto block = quantisation.find("weight_block_size");
  if (method == "fp8" && block != quantisation.end() && block->is_null()) {  // one scale for a whole weight
    const ConfigReader config(quantisation, "fp8", where);
    TEMPER_RETURN_IF_ERROR(config.Must("fmt", "e4m3"));
    PublishedQuantisation published{.format = *ParseElementFormat("fp8"), .left = {}, .note = ""};
    TEMPER_ASSIGN_OR_RETURN(published.left, config.Names("modules_to_not_convert"));
    return std::optional(std::move(published));
  }
  if (method == "bitsandbytes" && At(quantisation, "load_in_8bit") == true) {
    const ConfigReader config(quantisation, "bitsandbytes", where);
    PublishedQuantisation published{.format = ElementFormat::Int8Rows(), .left = {}, .note = ""};
    TEMPER_ASSIGN_OR_RETURN(published.left, config.Names("llm_int8_skip_modules"));
    return std::optional(std::move(published));
  }
  return std::optional<PublishedQuantisation>();
}

}  // namespace temper

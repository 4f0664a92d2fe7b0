// QuantMix: which type each tensor of a GGUF file gets. The names are llama.cpp's; so are the choices: tensors that
// matter more get more bits. Source: src/llama-quant.cpp, llama_tensor_get_type_impl and tensor_type_fallback, without
// an importance matrix; for types without scales conversion/base.py, prepare_tensors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf/gguf_writer.h"

namespace temper {

enum class QuantMix : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ6K, kQ5KM, kQ4KM, kQ4KS };

std::string_view NameOf(QuantMix mix);     // "q4_k_m"
std::vector<std::string_view> MixNames();  // in the order of QuantMix
uint32_t FileTypeOf(QuantMix mix);         // general.file_type: llama.h, enum llama_ftype

// What the choice depends on beside a tensor's name and shape.
struct MixedModel {
  std::string architecture;  // "llama"
  int64_t blocks = 0, heads = 0, kv_heads = 0;
  int64_t experts = 0;  // of a block; 0: none
};

// Sets the type of each tensor of a file. Returns lines for the user: rows that are not whole blocks of 256 get another
// type, as in llama.cpp. REQUIRES: names are those of llama.cpp; blocks come in order.
std::vector<std::string> ChooseTypes(QuantMix mix, const MixedModel& model, std::span<GgufDeclaration> tensors);

}  // namespace temper

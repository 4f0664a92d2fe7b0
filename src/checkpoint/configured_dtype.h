// The type of a model folder's weights, as its config.json says.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "format/json.h"
#include "tensor/dtype.h"

namespace temper {

// `dtype`, in older files `torch_dtype`, of a config.json; nullopt: it names none. Errors: a type that weights are not
// written in, such as float8; the message begins with `where`.
Result<std::optional<DType>> ConfiguredDType(const OrderedJson& config, const std::string& where);

// The type as torch spells it: "bfloat16". REQUIRES: bf16, f16 or f32.
std::string TorchName(DType type);

}  // namespace temper

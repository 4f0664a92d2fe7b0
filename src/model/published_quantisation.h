// The quantization_config of models that other tools than transformers itself have quantised: GPTQ, AWQ,
// compressed-tensors, bitsandbytes in 8 bits. What format their files come to in memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "tensor/element_format.h"

namespace temper {

struct PublishedQuantisation {
  std::optional<ElementFormat> format;  // of linear modules and experts; nullopt: they are read as numbers
  std::vector<std::string> left;        // modules that stay numbers: names, and "re:" with a pattern (IsLeft)
  std::string note;                     // for users; may be ""
};

// nullopt: of another quant_method. kUnsupported, with what it is, where it is not read. `where` names the file.
Result<std::optional<PublishedQuantisation>> ReadPublished(const Json& quantisation, const std::string& where);

// The names of quant_method that it knows, for messages.
std::vector<std::string> PublishedMethods();

}  // namespace temper

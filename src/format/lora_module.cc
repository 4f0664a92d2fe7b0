#include "format/lora_module.h"

namespace temper {

std::string LoraAName(const std::string& path) {
  return "base_model.model." + path + ".lora_A.weight";
}
std::string LoraBName(const std::string& path) {
  return "base_model.model." + path + ".lora_B.weight";
}

}  // namespace temper

#include "backend/cpu/isa.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace temper {
namespace {

// The builtins read cpuid and XGETBV once: a set whose registers the operating system does not save counts as absent.
Isa OfThisMachine() {
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return Isa::kScalar;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))) {
    return Isa::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

// oneDNN's names; one it does not know caps nothing, as there.
Isa CapOfEnvironment() {
  const char* text = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (text == nullptr) text = std::getenv("DNNL_MAX_CPU_ISA");
  if (text == nullptr) return Isa::kAvx512Bf16;
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name == "SSE41" || name == "AVX") return Isa::kScalar;
  if (name == "AVX2" || name == "AVX2_VNNI") return Isa::kAvx2;
  if (name == "AVX512_CORE" || name == "AVX512_CORE_VNNI") return Isa::kAvx512;
  return Isa::kAvx512Bf16;
}

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

}  // namespace

std::string_view ToString(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "?";
}

std::optional<Isa> ParseIsa(std::string_view text) {
  for (Isa isa : kAll) {
    if (ToString(isa) == text) return isa;
  }
  return std::nullopt;
}

Isa DetectIsa() {
  return std::min(OfThisMachine(), CapOfEnvironment());
}

std::vector<Isa> RunnableIsas() {
  std::vector<Isa> isas;
  for (Isa isa : kAll) {
    if (isa <= DetectIsa()) isas.push_back(isa);
  }
  return isas;
}

}  // namespace temper

#include "backend/cpu/isa.h"

#include <cpuid.h>

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
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16Dot : Isa::kAvx512;
}

// Intel's cores from Sapphire Rapids on leave bf16 products to AMX: one vdpbf16ps in two cycles, 32 FLOPs a cycle where
// their two f32 multiply-adds make 64 (150 against 290 GFLOP/s on two cores of an Emerald Rapids). They are those of
// Intel with AVX512-FP16. AMD's Zen 4 and 5 do twice as much by vdpbf16ps as in f32.
bool DotsAreSlow() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx512Fp16 = 1u << 23;  // of leaf 7, edx
  return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAvx512Fp16) != 0;
}

// oneDNN's names; one it does not know caps nothing, as there.
Isa CapOfEnvironment() {
  const char* text = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (text == nullptr) text = std::getenv("DNNL_MAX_CPU_ISA");
  if (text == nullptr) return Isa::kAvx512Bf16Dot;
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name == "SSE41" || name == "AVX") return Isa::kScalar;
  if (name == "AVX2" || name == "AVX2_VNNI") return Isa::kAvx2;
  if (name == "AVX512_CORE" || name == "AVX512_CORE_VNNI") return Isa::kAvx512;
  return Isa::kAvx512Bf16Dot;
}

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAvx512Bf16Dot};

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
    case Isa::kAvx512Bf16Dot:
      return "avx512_bf16_dot";
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
  const Isa isa = std::min(OfThisMachine(), CapOfEnvironment());
  return isa == Isa::kAvx512Bf16Dot && DotsAreSlow() ? Isa::kAvx512Bf16 : isa;
}

std::vector<Isa> RunnableIsas() {
  std::vector<Isa> isas;
  for (Isa isa : kAll) {
    if (isa <= std::min(OfThisMachine(), CapOfEnvironment())) isas.push_back(isa);
  }
  return isas;
}

}  // namespace temper

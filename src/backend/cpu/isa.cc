#include "backend/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace temper {
namespace {

// Registers of leaf 7 of cpuid.
struct Features {
  unsigned ebx = 0, ecx = 0, edx = 0;
};
Features FeaturesOfLeaf7() {
  Features f;
  unsigned eax = 0;
  __get_cpuid_count(7, 0, &eax, &f.ebx, &f.ecx, &f.edx);
  return f;
}

// The processor has it, the operating system saves its 8 KiB of registers for threads that use them, and lets this
// process use them. REQUIRES: AVX, and with it XGETBV.
bool MayUseAmx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;      // of edx
  constexpr unsigned kTileConfig = 1u << 17, kTileData = 1u << 18;  // of XCR0
  const unsigned edx = FeaturesOfLeaf7().edx;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  unsigned xcr0 = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if ((xcr0 & kTileConfig) == 0 || (xcr0 & kTileData) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kXfeatureTileData = 18;  // ARCH_REQ_XCOMP_PERM, Linux 5.16 and later
  return syscall(SYS_arch_prctl, kRequestPermission, kXfeatureTileData) == 0;
}

// The builtins read cpuid and XGETBV once: a set whose registers the operating system does not save counts as absent.
Isa OfThisMachine() {
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return Isa::kScalar;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))) {
    return Isa::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512;
  static const bool amx = MayUseAmx();
  return amx ? Isa::kAmxBf16 : Isa::kAvx512Bf16Dot;
}

// Intel's cores from Sapphire Rapids on leave bf16 products to AMX: one vdpbf16ps in two cycles, 32 FLOPs a cycle where
// their two f32 multiply-adds make 64 (150 against 290 GFLOP/s on two cores of an Emerald Rapids). They are those of
// Intel with AVX512-FP16. AMD's Zen 4 and 5 do twice as much by vdpbf16ps as in f32.
bool DotsAreSlow() {
  constexpr unsigned kAvx512Fp16 = 1u << 23;  // of edx
  return __builtin_cpu_is("intel") && (FeaturesOfLeaf7().edx & kAvx512Fp16) != 0;
}

// oneDNN's names; one it does not know caps nothing, as there.
Isa CapOfEnvironment() {
  const char* text = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (text == nullptr) text = std::getenv("DNNL_MAX_CPU_ISA");
  if (text == nullptr) return Isa::kAmxBf16;
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name == "SSE41" || name == "AVX") return Isa::kScalar;
  if (name == "AVX2" || name == "AVX2_VNNI" || name == "AVX2_VNNI_2") return Isa::kAvx2;
  if (name == "AVX512_CORE" || name == "AVX512_CORE_VNNI") return Isa::kAvx512;
  if (name == "AVX512_CORE_BF16" || name == "AVX512_CORE_FP16" || name == "AVX10_1_512") return Isa::kAvx512Bf16Dot;
  return Isa::kAmxBf16;
}

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAvx512Bf16Dot, Isa::kAmxBf16};

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
    case Isa::kAmxBf16:
      return "amx_bf16";
  }
  return "?";
}

std::optional<Isa> ParseIsa(std::string_view text) {
  for (Isa isa : kAll) {
    if (ToString(isa) == text) return isa;
  }
  return std::nullopt;
}

// All processors with AMX have slow dots.
Isa VectorIsa(Isa isa) {
  return isa == Isa::kAmxBf16 ? Isa::kAvx512Bf16 : isa;
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

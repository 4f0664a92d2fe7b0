// Which vector instructions the kernels may use. Decided once, when the kernel table is made; no kernel asks cpuid.
//
// Code for an instruction set lives only in files named *_avx2.cc, *_avx512.cc and *_amx.cc (cmake/layers.cmake gives
// them their flags). Such a file must define nothing that the linker could merge with a definition of another file: its
// code and the headers it includes for it stay in anonymous namespaces, and it calls no inline function or template of
// a shared header.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace temper {

enum class Isa : uint8_t {  // each includes the ones before it
  kScalar,                  // the reference kernels: any x86-64
  kAvx2,                    // AVX2, FMA, F16C
  kAvx512,                  // AVX-512 F, BW, VL, DQ
  kAvx512Bf16,              // with conversions to bf16; products of bf16 in f32
  kAvx512Bf16Dot,           // with products of bf16 by vdpbf16ps
  kAmxBf16,                 // matrix products of bf16 by tdpbf16ps, all else as on VectorIsa
};

// The level for everything except matrix products.
Isa VectorIsa(Isa isa);

std::string_view ToString(Isa isa);                  // "avx512_bf16"
std::optional<Isa> ParseIsa(std::string_view text);  // the inverse

// The fastest level on this processor and operating system, capped by the environment variable ONEDNN_MAX_CPU_ISA
// (SSE41, AVX, AVX2, AVX512_CORE, AVX512_CORE_BF16, AVX512_CORE_AMX, ALL: the cap that oneDNN obeys). It depends on the
// processor, not on a measurement: a resumed run computes the same bits. Where there is AMX, the first call asks the
// kernel for the process's permission to use it.
Isa DetectIsa();

// The levels that run here under the same cap, lowest first, slow ones included: tests run through them.
std::vector<Isa> RunnableIsas();

}  // namespace temper

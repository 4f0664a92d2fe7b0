// The tile registers of Intel's matrix units (AMX) as all kernels configure them: eight of 16 rows of 64 bytes.
// Included by what runs on the processor (*_amx.cc) and, after emulator/amx-inl.h, by what tests run without it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace temper {
namespace {

constexpr int kRegisterRows = 16, kRowBytes = 64, kRegisterBytes = kRegisterRows * kRowBytes;

// What ldtilecfg reads (palette 1).
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes};
  uint8_t rows[16] = {kRegisterRows, kRegisterRows, kRegisterRows, kRegisterRows,
                      kRegisterRows, kRegisterRows, kRegisterRows, kRegisterRows};
};
static_assert(sizeof(TileConfig) == 64);
alignas(64) constexpr TileConfig kWholeRegisters;

// A thread's registers are empty until it configures them, and until
// it releases them every switch to another thread costs 8 KiB.
inline void EnterTiles() {
  _tile_loadconfig(&kWholeRegisters);
}
inline void LeaveTiles() {
  _tile_release();
}

// GCC's tile loads do not say that they read memory: what was written before must be there.
inline __attribute__((always_inline)) void BeforeTileLoads() {
  __asm__ volatile("" : : : "memory");
}

}  // namespace
}  // namespace temper

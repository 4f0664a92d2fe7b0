#include "format/checksum.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <new>

namespace temper {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

void Checksum::Update(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_64bits_update(state_.get(), data.data(), data.size());
}

std::string Checksum::Hex() const {
  return fmt::format("{:016x}", Value());
}

uint64_t Checksum::Value() const {
  return XXH3_64bits_digest(state_.get());
}

std::string ChecksumHex(std::span<const std::byte> data) {
  return fmt::format("{:016x}", XXH3_64bits(data.data(), data.size()));
}

}  // namespace temper

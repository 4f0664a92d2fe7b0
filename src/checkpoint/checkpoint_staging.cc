#include "checkpoint/checkpoint_staging.h"

#include "format/checksum.h"

namespace temper {

Manifest::File TensorFileEntry(const std::string& name, const SafetensorsWriter& writer) {
  return {name, writer.file_size(), ChecksumHex(std::as_bytes(std::span(writer.head()))), /*header_only=*/true};
}

}  // namespace temper

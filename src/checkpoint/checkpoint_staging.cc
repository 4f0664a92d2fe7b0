#include "checkpoint/checkpoint_staging.h"

#include "format/checksum.h"

namespace temper {

Result<Manifest::File> TensorFileEntry(const std::string& name, const SafetensorsWriter& writer) {
  const SafetensorsHeader header{.tensors = writer.order(), .metadata = SafetensorsWriter::DefaultMetadata()};
  TEMPER_ASSIGN_OR_RETURN(const std::string head, FormatSafetensorsHeader(header));
  const int64_t data = writer.order().empty() ? 0 : writer.order().back().end;
  return Manifest::File{name,
                        {static_cast<int64_t>(head.size()) + data},
                        ChecksumHex(std::as_bytes(std::span(head))),
                        /*header_only=*/true};
}

}  // namespace temper

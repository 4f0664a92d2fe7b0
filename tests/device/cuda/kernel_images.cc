#include "kernel_images.h"

#include <cstring>

namespace temper::cuda {
namespace {

// As fatbinary writes it (its headers are not published; these fields were observed in the output of nvcc 13): a
// header, then for each image another header and the image.
struct FatBinary {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all images with their headers
};
struct Image {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;             // of the image
  uint32_t compressed_bytes;  // 0: it is not compressed
};
constexpr uint32_t kMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1;

}  // namespace

std::string_view PtxOf(const void* fat_binary) {
  FatBinary all;
  std::memcpy(&all, fat_binary, sizeof(all));
  if (all.magic != kMagic) return {};
  const char* at = static_cast<const char*>(fat_binary) + all.header_bytes;
  const char* const end = at + all.bytes;
  while (at < end) {
    Image image;
    std::memcpy(&image, at, sizeof(image));
    if (image.kind == kPtx && image.compressed_bytes == 0) {
      // The text is followed by zeros, up to where the next image may begin.
      return std::string_view(at + image.header_bytes, strnlen(at + image.header_bytes, image.bytes));
    }
    at += image.header_bytes + image.bytes;
  }
  return {};
}

}  // namespace temper::cuda

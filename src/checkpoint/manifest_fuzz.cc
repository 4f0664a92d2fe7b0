// libFuzzer target: any bytes as a manifest, or as the part of it that one rank of several hands in, are refused with a
// message, or read as one that prints and reads back to itself. A checksum guards the text, which no mutation would
// ever meet: so the text is tried with its own last lines and once more with the right ones.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "checkpoint/manifest.h"
#include "format/checksum.h"

namespace temper {
namespace {

constexpr std::string_view kTail = " \"checksum\": \"";

void CheckAsFragment(const std::string& text) {
  const Result<ManifestFragment> fragment = ParseFragment(text, "f");
  if (!fragment.ok()) {
    if (fragment.status().message().empty()) std::abort();
    return;
  }
  const std::string printed = FormatFragment(*fragment);
  const Result<ManifestFragment> again = ParseFragment(printed, "f");
  if (!again.ok() || FormatFragment(*again) != printed) std::abort();
}

void Check(const std::string& text) {
  CheckAsFragment(text);
  const Result<Manifest> manifest = ParseManifest(text, "m");
  if (!manifest.ok()) {
    if (manifest.status().message().empty()) std::abort();
    return;
  }
  const std::string printed = FormatManifest(*manifest);
  const Result<Manifest> again = ParseManifest(printed, "m");
  if (!again.ok() || FormatManifest(*again) != printed) std::abort();
  if (!(again->state == manifest->state) || !(again->identity == manifest->identity)) std::abort();
  if (!DescribeDifferences(manifest->identity, again->identity).empty()) std::abort();
  for (const Manifest::Tensor& t : manifest->tensors) {
    if (manifest->Find(t.name) != &t || t.type.bytes().v < 0) std::abort();
  }
}

}  // namespace
}  // namespace temper

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  temper::Check(text);
  const std::string body = text.substr(0, text.rfind(temper::kTail));
  temper::Check(body + std::string(temper::kTail) + temper::ChecksumHex(std::as_bytes(std::span(body))) + "\"\n}\n");
  return 0;
}

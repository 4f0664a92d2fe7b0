// libFuzzer target: feeds bytes to the readers of a tokenizer's files and encodes a text with the result. No input may
// crash or hang them. The first byte chooses the file; a text follows the last NUL.
#include <cstddef>
#include <cstdint>
#include <string>

#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "data/tokenizer/stream_decoder.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  if (size == 0) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = all.rfind('\0');
  const std::string file = all.substr(0, cut);
  const std::string text = cut == all.npos ? "Hello <s> world, \xE2\x96\x81 it's 42\n" : all.substr(cut + 1);

  MemoryFolder folder;
  switch (data[0] % 6) {
    case 0:
      folder.files["tokenizer.json"] = file;
      break;
    case 1:
      folder.files["tokenizer.model"] = file;
      break;
    case 2: {
      const size_t middle = file.find('\x01');
      folder.files["vocab.json"] = file.substr(0, middle);
      folder.files["merges.txt"] = middle == file.npos ? "" : file.substr(middle + 1);
      break;
    }
    case 4:
      folder.files["qwen.tiktoken"] = file;
      break;
    case 5:
      folder.files["spiece.model"] = file;
      break;
    default:
      folder.files["vocab.json"] = R"({"a": 0, "b": 1, "ab": 2})";
      folder.files["merges.txt"] = "a b\n";
      folder.files["tokenizer_config.json"] = file;
      break;
  }
  const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
  if (!tokenizer.ok()) return 0;
  for (const bool flag : {false, true}) {
    const auto ids = (*tokenizer)->Encode(text, {.add_special = flag, .parse_special = flag});
    if (!ids.ok()) continue;
    (void)(*tokenizer)->Decode(*ids, flag);
    StreamDecoder stream(**tokenizer, flag);
    for (const int32_t id : *ids) (void)stream.Push(id);
    (void)stream.Finish();
  }
  return 0;
}

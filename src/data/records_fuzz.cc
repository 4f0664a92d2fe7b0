// libFuzzer target: any bytes as a data file. Each row is cut out, parsed, made a record and tokenised, or is an error.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "data/dataset.h"
#include "data/fake_tokenizer.h"

namespace temper {
namespace {

// One file in memory; its name chooses how it is read.
class FuzzFile final : public RandomAccessFile {
 public:
  FuzzFile(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {}
  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || static_cast<size_t>(offset) + out.size() > bytes_.size()) return Corrupt("read beyond the end");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }
  Bytes size() const override { return {static_cast<int64_t>(bytes_.size())}; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const std::string_view bytes_;  // libFuzzer's own copy, which ends where the memory does
};

class FuzzEnv final : public Env {
 public:
  explicit FuzzEnv(std::string_view bytes) : bytes_(bytes) {}
  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    return std::unique_ptr<RandomAccessFile>(std::make_unique<FuzzFile>(path, bytes_));
  }
  bool IsFile(const std::string&) override { return true; }
  bool IsFolder(const std::string&) override { return false; }
  // Reading data writes nothing.
  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& p, WriteMode) override { return IoError(p); }
  Status Rename(const std::string& from, const std::string&) override { return IoError(from); }
  Status RemoveFile(const std::string& p) override { return IoError(p); }
  Status RemoveTree(const std::string& p) override { return IoError(p); }
  Status CreateFolders(const std::string& p) override { return IoError(p); }
  Status SyncFolder(const std::string& p) override { return IoError(p); }
  Status Truncate(const std::string& p, int64_t) override { return IoError(p); }
  Result<std::vector<std::string>> List(const std::string& p) override { return IoError(p); }
  Result<Bytes> FreeSpace(const std::string& p) override { return IoError(p); }

 private:
  const std::string_view bytes_;
};

}  // namespace
}  // namespace temper

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  using namespace temper;
  static const FakeTokenizer tokenizer({"un", "able", "unable"}, /*dummy_prefix=*/true);
  const char* names[] = {"f.jsonl", "f.json", "f.txt", "f.csv"};
  FuzzEnv env(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  const bool pairs = (data[0] & 12) == 12;
  const DatasetOptions options{
      .tokenize = {.max_seq_len = 2 + data[0] / 16, .train_on_prompt = !pairs && (data[0] & 8) != 0},
      .skip_bad_rows = (data[0] & 4) != 0};
  static const auto chat = ChatTemplate::FromSource(
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{{ m.tool_calls }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "fuzz", {});
  const ChatTemplate* used = (data[0] & 128) != 0 ? &*chat : nullptr;
  const auto dataset = LoadDataset(
      env, {{.path = names[data[0] % 4], .use = pairs ? RowUse::kPairs : RowUse::kAnswers}}, tokenizer, used, options);
  if (!dataset.ok()) return 0;
  for (int64_t s = 0; s < dataset->store.size(); ++s) {
    const int64_t n = dataset->store.length(s);
    TEMPER_CHECK(n >= 2 && n <= options.tokenize.max_seq_len) << n;
    TEMPER_CHECK(dataset->store.sample(s).supervised(n - 1) && !dataset->store.sample(s).supervised(0)) << s;
  }
  TEMPER_CHECK(dataset->store.total_supervised() == dataset->statistics.supervised) << "counts differ";
  return 0;
}

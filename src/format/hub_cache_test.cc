// The cache against huggingface_hub's own answers (tests/format/make_hub_cache_cases.py), and what is said of one that
// lacks something.
#include "format/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "format/json.h"

namespace temper::hub_cache_test {
namespace {

// Variables that decide where the cache is; restored when it is destroyed.
class Environment {
 public:
  Environment() {
    for (const char* name : {"HOME", "XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE", "DISK"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? std::optional<std::string>() : value);
      unsetenv(name);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

std::string InRoot(std::string text, const std::string& root) {
  constexpr std::string_view kRoot = "$ROOT";
  for (size_t at = 0; (at = text.find(kRoot, at)) != text.npos;) text.replace(at, kRoot.size(), root);
  return text;
}

void Write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(path)).ok());
  std::ofstream(path) << text;
}

TEST(HubCache, RepositoriesAreFoundWhereHuggingfaceHubFindsThem) {
  const auto golden = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/hub_cache_cases.json");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  for (const Json& layout : (*golden)["layouts"]) {
    const ScratchFolder root;
    for (const auto& [path, text] : layout.items()) Write(root / path, text.get<std::string>());
    for (const Json& c : (*golden)["cases"]) {
      if ((*golden)["layouts"][c["layout"].get<size_t>()] != layout) continue;
      const Environment environment;
      for (const auto& [name, value] : c["env"].items()) {
        setenv(name.c_str(), InRoot(value.get<std::string>(), root.path()).c_str(), 1);
      }
      const HubCache cache = HubCache::OfMachine(PosixEnv());
      EXPECT_EQ(cache.folder(), InRoot(c["cache"].get<std::string>(), root.path())) << c;
      const std::string revision = c["revision"].get<std::string>();
      const auto name = HubName::Parse(c["name"].get<std::string>() + (revision.empty() ? "" : "@" + revision),
                                       c["kind"] == "model" ? HubKind::kModel : HubKind::kDataset);
      const auto snapshot = name ? cache.Snapshot(*name, /*needs_weights=*/false) : NotFound("");
      if (c["snapshot"].is_null()) {
        EXPECT_FALSE(snapshot.ok()) << c;
      } else {
        ASSERT_TRUE(snapshot.ok()) << c << snapshot.status().message();
        EXPECT_EQ(*snapshot, InRoot(c["snapshot"].get<std::string>(), root.path()));
      }
    }
  }
}

TEST(HubName, APathIsNoName) {
  for (const char* text : {"", "/org/name", "./org/name", "../name", "org/name/x", "org/", "org//name", "~/name",
                           "org/name@", "org/name@../x", "org/name@a//b", "org/n ame"}) {
    EXPECT_FALSE(HubName::Parse(text, HubKind::kModel)) << text;
  }
  EXPECT_FALSE(HubName::Parse("org/name/../x.jsonl", HubKind::kDataset));
  const auto data = HubName::Parse("org/name@v2/data/train.jsonl", HubKind::kDataset);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->repository, "org/name");
  EXPECT_EQ(data->revision, "v2");
  EXPECT_EQ(data->file, "data/train.jsonl");
  EXPECT_EQ(data->DownloadCommand(), "hf download org/name data/train.jsonl --repo-type dataset --revision v2");
}

// A cache whose one repository has the files as `hf download` lays them out: links into blobs.
class HubCacheTest : public testing::Test {
 protected:
  void SetUp() override { setenv("HF_HUB_CACHE", root_.path().c_str(), 1); }

  std::string Repository() const { return root_ / (kind_ == HubKind::kModel ? "models--o--m" : "datasets--o--m"); }
  void Ref(const std::string& name = "main") { Write(Repository() + "/refs/" + name, std::string(40, 'c')); }
  void Add(const std::string& file, const std::string& text = "x") {
    const std::string snapshot = Repository() + "/snapshots/" + std::string(40, 'c');
    const std::string blob = Repository() + "/blobs/" + std::to_string(blobs_++);
    Write(blob, text);
    ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(JoinPath(snapshot, file))).ok());
    std::filesystem::create_symlink(blob, JoinPath(snapshot, file));
  }
  std::string Error(bool needs_weights = true) {
    const auto found = HubCache::OfMachine(PosixEnv()).Snapshot({kind_, "o/m", "", ""}, needs_weights);
    return found.ok() ? "" : found.status().message();
  }
  // What the name of the data set finds, or the error.
  std::string Rows(const std::string& name) {
    const auto found = FindDataFile(PosixEnv(), name, "data");
    return found.ok() ? BaseName(*found) : found.status().message();
  }
  static bool Has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

  const Environment environment_;
  const ScratchFolder root_;
  HubKind kind_ = HubKind::kModel;
  int blobs_ = 0;
};

TEST_F(HubCacheTest, ATruncatedCacheIsExplainedInOneLine) {
  Ref();
  EXPECT_TRUE(Has(Error(), "is missing: fetch it with `hf download o/m`")) << Error();
  Add("README.md");
  EXPECT_TRUE(Has(Error(), "has no config.json")) << Error();
  Add("config.json", "{}");
  EXPECT_EQ(Error(/*needs_weights=*/false), "");
  EXPECT_TRUE(Has(Error(), "has no weights: finish the download with `hf download o/m`")) << Error();
  Write(Repository() + "/blobs/9.incomplete", "x");
  EXPECT_TRUE(Has(Error(), "has no weights (a download was interrupted): finish")) << Error();
  Add("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  Add("1.safetensors");
  EXPECT_TRUE(Has(Error(), "is incomplete: it lacks 2.safetensors (a download was interrupted)")) << Error();
  Add("2.safetensors");
  EXPECT_EQ(Error(), "") << "what is not finished is none of the model's files";
  ASSERT_TRUE(PosixEnv().RemoveFile(Repository() + "/blobs/4").ok());
  EXPECT_TRUE(Has(Error(), "is incomplete: 2.safetensors is a link to nothing")) << Error();
  EXPECT_EQ(Error(/*needs_weights=*/false), "");
  EXPECT_EQ(Error().find('\n'), std::string::npos);
}

TEST_F(HubCacheTest, ARevisionThatIsNotThereIsExplainedWithThoseThatAre) {
  Ref("v1");
  Ref("refs/pr/3");
  EXPECT_TRUE(Has(Error(), "has no revision 'main' (it has refs/pr/3, v1): fetch it with `hf download o/m`"))
      << Error();
  Write(Repository() + "/refs/main", "rubbish");
  EXPECT_TRUE(Has(Error(), "should hold a commit but holds 'rubbish'")) << Error();
}

TEST_F(HubCacheTest, ADataSetsRowsAreItsOnlyFileOfThem) {
  kind_ = HubKind::kDataset;
  Ref();
  Add("README.md");
  Add("dataset_infos.json");
  EXPECT_TRUE(Has(Rows("o/m"), "has no .jsonl, .json, .csv, .tsv, .parquet or .arrow file")) << Rows("o/m");
  Add("data/part.parquet");
  EXPECT_EQ(Rows("o/m"), "part.parquet");
  ASSERT_TRUE(PosixEnv().RemoveTree(Repository() + "/snapshots/" + std::string(40, 'c') + "/data").ok());
  Add("data/train.jsonl");
  EXPECT_EQ(Rows("o/m"), "train.jsonl");
  EXPECT_EQ(Rows("o/m@main"), "train.jsonl");
  Add("test.json");
  EXPECT_TRUE(Has(Rows("o/m"), "data/train.jsonl, test.json. Name one of them: o/m/data/train.jsonl")) << Rows("o/m");
  EXPECT_EQ(Rows("o/m/test.json"), "test.json");
  EXPECT_TRUE(Has(Rows("o/m/no.jsonl"), "has no file no.jsonl (it has data/train.jsonl, test.json)"));
  Add("table.csv");
  Add("packed.jsonl.zst");
  EXPECT_TRUE(Has(Rows("o/m"), "data/train.jsonl, packed.jsonl.zst, table.csv, test.json")) << Rows("o/m");
}

TEST_F(HubCacheTest, ADataSetOfSeveralFilesStandsForTheirNames) {
  kind_ = HubKind::kDataset;
  Ref();
  const auto files = [](const std::string& name) {
    const auto found = HubFilesOf(PosixEnv(), name, "data");
    return found.ok() ? *found : std::vector{found.status().message()};
  };
  using Strings = std::vector<std::string>;
  Add("data/train-00000-of-00002.parquet");
  EXPECT_EQ(files("o/m"), Strings{"o/m"});
  Add("data/train-00001-of-00002.parquet");
  Add("data/test-00000-of-00001.parquet");
  EXPECT_EQ(files("o/m@main"),
            (Strings{"o/m@main/data/test-00000-of-00001.parquet", "o/m@main/data/train-00000-of-00002.parquet",
                     "o/m@main/data/train-00001-of-00002.parquet"}));
  EXPECT_EQ(files("o/m/data").size(), 3u);
  EXPECT_EQ(files("o/m/data/test-00000-of-00001.parquet"), Strings{"o/m/data/test-00000-of-00001.parquet"});
  Add("more/train/0000.jsonl");
  Add("more/test/0000.jsonl");
  EXPECT_TRUE(Has(files("o/m")[0],
                  "--data o/m: the data set has rows in several folders: data, more. Name one of them: "
                  "o/m/data"))
      << files("o/m")[0];
  EXPECT_EQ(files("o/m/more"), (Strings{"o/m/more/test/0000.jsonl", "o/m/more/train/0000.jsonl"}));
  EXPECT_EQ(files("o/m/none"), Strings{"o/m/none"});
  EXPECT_EQ(files("o/none"), Strings{"o/none"});
}

TEST_F(HubCacheTest, AFileOnTheDiskGoesBeforeADataSet) {
  kind_ = HubKind::kDataset;
  Ref();
  Add("train.jsonl");
  const std::string here = std::filesystem::current_path();
  const ScratchFolder folder;
  std::filesystem::current_path(folder.path());
  EXPECT_TRUE(Has(*FindDataFile(PosixEnv(), "o/m/train.jsonl", "data"), "snapshots"));
  Write("o/m/train.jsonl", "{}");
  EXPECT_EQ(*FindDataFile(PosixEnv(), "o/m/train.jsonl", "data"), "o/m/train.jsonl");
  // What looks like a path is left to whoever opens it.
  EXPECT_EQ(*FindDataFile(PosixEnv(), "folder/train.jsonl", "data"), "folder/train.jsonl");
  EXPECT_EQ(*FindDataFile(PosixEnv(), "/no/train.jsonl", "data"), "/no/train.jsonl");
  EXPECT_TRUE(Has(Rows("o/none"), "--data o/none: there is no such file, and the Hugging Face cache ("))
      << Rows("o/none");
  EXPECT_TRUE(Has(Rows("o/none"), "`hf download o/none --repo-type dataset`"));
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace temper::hub_cache_test

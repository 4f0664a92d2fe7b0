#include "checkpoint/adapter.h"

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace temper::adapter_test {
namespace {

// A head that an earlier version of the class called otherwise.
const LoraModule kHead = {.path = "lm_head", .older_paths = {"embed_out"}, .in = 3, .out = 2, .r = 1};

// Opens an adapter whose file has A and B of each of these paths: path i's A is i, i, i.
Result<AdapterReader> Written(const std::string& folder, const std::vector<std::string>& paths) {
  std::vector<std::vector<float>> numbers;
  std::vector<NamedView> views;
  numbers.reserve(2 * paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    for (const auto& [name, shape] :
         {std::pair{LoraAName(paths[i]), Shape{1, 3}}, {LoraBName(paths[i]), Shape{2, 1}}}) {
      std::vector<float>& x = numbers.emplace_back(static_cast<size_t>(shape.elements()), static_cast<float>(i));
      views.push_back({name, View{reinterpret_cast<std::byte*>(x.data()), {DType::kF32, shape}}});
    }
  }
  const Status written = WriteAdapter(PosixEnv(), folder, {.target_modules = paths}, views);
  TEMPER_CHECK(written.ok()) << written.message();
  return AdapterReader::Open(PosixEnv(), folder, {&kHead, 1});
}

TEST(AdapterReader, FindsTensorsUnderTheNamesOfEarlierVersions) {
  const ScratchFolder older, today, both, neither;
  for (const auto& opened : {Written(older.path(), {"embed_out"}), Written(today.path(), {"lm_head"})}) {
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    float a[3] = {7, 7, 7};
    ASSERT_TRUE(opened->Read(LoraAName("lm_head"), a).ok());
    EXPECT_EQ(a[0], 0);
  }
  EXPECT_NE(Written(both.path(), {"embed_out", "lm_head"}).status().message().find("embed_out.lora_A"),
            std::string::npos)
      << "one of the two would be ignored";
  EXPECT_NE(Written(neither.path(), {"head"}).status().message().find("lacks tensor base_model.model.lm_head.lora_A"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::adapter_test

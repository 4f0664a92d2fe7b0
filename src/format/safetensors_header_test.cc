// What a safetensors header may lie about, each lie with the words that the user gets.
#include "format/safetensors_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "format/memory_env_for_test.h"
#include "format/safetensors.h"

namespace temper::safetensors_header_test {
namespace {

std::string WithLength(const std::string& json, const std::string& data = "") {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + json + data;
}

Status OpenBytes(const std::string& bytes, const std::string& path = "dir/model.safetensors") {
  MemoryEnv env;
  env.files[path] = bytes;
  return SafetensorsFile::Open(env, path).status();
}

// One F32 tensor "w" of shape [2] with 8 bytes of data: valid.
constexpr char kGood[] = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

struct Lie {
  const char* name;
  std::string bytes;
  std::vector<std::string> says;  // fragments of the message; all messages must name the file too
};

std::vector<Lie> Lies() {
  const std::string d8(8, 'x');
  const auto entry = [&](const std::string& inside, int data = 8) {
    return WithLength("{\"w\":" + inside + "}", std::string(data, 'x'));
  };
  const std::string deep(200000, '[');
  std::string many = R"({"__metadata__":{)";
  for (int i = 0; i <= 100'000; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  return {
      {"EmptyFile", "", {"is empty"}},
      {"SevenBytes", "1234567", {"7 bytes, too few"}},
      {"LengthBeyondLimit", std::string("\x01\xE1\xF5\x05\0\0\0\0", 8) + "{}", {"promise a header of 100000001 bytes"}},
      {"LengthOfAllOnes", std::string(8, '\xFF') + "{}", {"18446744073709551615"}},
      {"LengthBeyondFile", std::string("\x20\0\0\0\0\0\0\0", 8) + "{}", {"truncated", "32 bytes", "10 bytes in all"}},
      {"EmptyHeader", WithLength(""), {"header should start with '{'", "is empty"}},
      {"HeaderIsArray", WithLength("[]"), {"should start with '{'", "'['"}},
      {"NotJson", WithLength("{\"w\":}"), {"not valid JSON at byte"}},
      {"CutJson", WithLength("{\"w\":{\"dtype\":\"F32\""), {"not valid JSON"}},
      {"TextAfterJson", WithLength("{} x"), {"not valid JSON"}},
      {"ZeroBytesAfterJson", WithLength(std::string("{}\0\0", 4)), {"not valid JSON"}},
      {"NotUtf8", WithLength("{\"\xFF\xFE\":1}"), {"not valid JSON"}},
      {"DeepNesting", WithLength("{\"w\":{\"x\":" + deep), {"not valid JSON"}},
      {"TensorIsNumber", entry("3"), {"tensor 'w' is a number, not an object"}},
      {"TensorIsNull", entry("null"), {"tensor 'w' is null"}},
      {"TensorIsArray", entry("[]"), {"tensor 'w' is an array"}},
      {"TensorIsString", entry("\"F32\""), {"tensor 'w' is a string"}},
      {"TensorIsFloat", entry("1.5"), {"'1.5'"}},
      {"NoDType", entry(R"({"shape":[2],"data_offsets":[0,8]})"), {"tensor 'w' has no dtype"}},
      {"NoShape", entry(R"({"dtype":"F32","data_offsets":[0,8]})"), {"tensor 'w' has no shape"}},
      {"NoOffsets", entry(R"({"dtype":"F32","shape":[2]})"), {"tensor 'w' has no data_offsets"}},
      {"UnknownDType",
       entry(R"({"dtype":"Q4_K","shape":[2],"data_offsets":[0,8]})"),
       {"tensor 'w'", "unknown dtype 'Q4_K'", "BF16"}},
      {"DTypeIsNumber", entry(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"), {"has a number as its dtype"}},
      {"DTypeTwice", entry(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), {"'dtype' twice"}},
      {"ShapeTwice", entry(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"), {"'shape' twice"}},
      {"OffsetsTwice",
       entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]})"),
       {"'data_offsets' twice"}},
      {"ShapeIsString", entry(R"({"dtype":"F32","shape":"2","data_offsets":[0,8]})"), {"has a string as its shape"}},
      {"ShapeIsObject", entry(R"({"dtype":"F32","shape":{},"data_offsets":[0,8]})"), {"has an object as its shape"}},
      {"NegativeDim",
       entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
       {"negative number -2 in its shape"}},
      {"FractionalDim", entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), {"'2.0' in its shape"}},
      {"StringDim", entry(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"), {"a string in its shape"}},
      {"NestedDim", entry(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"), {"an array in its shape"}},
      {"HugeDim",
       entry(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"),
       {"9223372036854775808", "more than any file"}},
      {"BeyondUint64Dim",
       entry(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]})"),
       {"99999999999999999999"}},
      {"ShapeOverflows",
       entry(R"({"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]})"),
       {"more bytes than 64 bits can count"}},
      {"ShapeOverflowsBehindZero",
       entry(R"({"dtype":"F32","shape":[0,4294967296,4294967296,4],"data_offsets":[0,0]})", 0),
       {"more bytes than 64 bits can count"}},
      {"RankBeyondReason",
       [&] {
         std::string ones = "1";
         for (int i = 0; i < 64; ++i) ones += ",1";
         return entry(R"({"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]})", 4);
       }(),
       {"more than 64 numbers in its shape"}},
      {"OneOffset", entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8]})"), {"1 data_offsets instead of 2"}},
      {"ThreeOffsets", entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), {"3 data_offsets"}},
      {"NegativeOffset",
       entry(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"),
       {"negative number -8 in its data_offsets"}},
      {"EndBeforeBegin",
       entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
       {"ends (byte 0) before it begins (byte 8)"}},
      {"SizeIsNotShape",
       entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
       {"F32[3] should have 12 bytes", "span 8"}},
      {"PackedTypeEndsInsideByte",
       entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", 1),
       {"does not fill whole bytes"}},
      {"Truncated", WithLength(kGood, "1234567"), {"truncated", "'w'", "ends at byte 8", "holds only 7"}},
      {"OffsetsBeyondFile",
       entry(R"({"dtype":"F32","shape":[2305843009213693951],"data_offsets":[0,9223372036854775804]})"),
       {"64 bits"}},
      {"OffsetsFarBeyondFile",
       entry(R"({"dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000]})"),
       {"truncated", "1000000000000"}},
      {"BytesBehindLastTensor", WithLength(kGood, d8 + "!"), {"1 bytes after its last tensor ('w')"}},
      {"DataWithoutTensors", WithLength("{}", "x"), {"1 bytes after its last tensor"}},
      {"HoleAtStart",
       entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
       {"bytes 0 to 4", "before tensor 'w'", "no tensor"}},
      {"HoleBetween",
       WithLength(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                  "12345"),
       {"bytes 2 to 3", "'b'"}},
      {"Overlap",
       WithLength(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[1,5]},)"
                  R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                  "12345"),
       {"tensors 'a' and 'b' overlap", "ends at byte 2", "begins at byte 1"}},
      {"SamePlaceTwice",
       WithLength(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                  "1234"),
       {"'a' and 'b' overlap"}},
      {"EmptyTensorInsideAnother",
       WithLength(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                  "1234"),
       {"'a' and 'b' overlap"}},
      {"NameTwice",
       WithLength(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                  "12"),
       {"tensor 'a' is in the header twice"}},
      {"MetadataIsString", WithLength(R"({"__metadata__":"pt"})"), {"a string as __metadata__"}},
      {"MetadataIsArray", WithLength(R"({"__metadata__":[]})"), {"an array as __metadata__"}},
      {"MetadataHoldsNumber",
       WithLength(R"({"__metadata__":{"epoch":3}})"),
       {"a number for the key 'epoch' of __metadata__"}},
      {"MetadataHoldsObject", WithLength(R"({"__metadata__":{"e":{}}})"), {"an object for the key 'e'"}},
      {"MetadataTwice", WithLength(R"({"__metadata__":{},"__metadata__":{}})"), {"__metadata__ twice"}},
      {"MetadataKeyTwice", WithLength(R"({"__metadata__":{"a":"1","a":"2"}})"), {"key 'a' twice in __metadata__"}},
      {"MetadataIsEndless", WithLength(many + "}}"), {"more than 100000 entries in __metadata__"}},
      {"TorchZip",
       std::string("PK\x03\x04\x14\0\x08\x08\x08\0data.pkl", 18),
       {"is a zip archive, where safetensors must be"}},
      {"BarePickle", std::string("\x80\x02}q\0(X\x05\0\0\0", 12), {"is a pickle, where safetensors must be"}},
      {"LegacyTorch", std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20", 10), {"is a pickle"}},
      {"GitLfsPointer",
       "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       {"Git LFS pointer", "git lfs pull"}},
      {"Gguf", std::string("GGUF\x03\0\0\0\xFF\0\0\0\0\0\0\0", 16), {"GGUF"}},
      {"WebPage", "<!DOCTYPE html><html><body>404</body></html>", {"web page", "fetch it again"}},
  };
}

void PrintTo(const Lie& lie, std::ostream* out) {
  *out << lie.name;
}

class SafetensorsLie : public testing::TestWithParam<Lie> {};

TEST_P(SafetensorsLie, IsRefusedWithWhatAndWhere) {
  const Status status = OpenBytes(GetParam().bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("dir/model.safetensors"), std::string::npos) << status.message();
  for (const std::string& fragment : GetParam().says) {
    EXPECT_NE(status.message().find(fragment), std::string::npos)
        << "'" << fragment << "' is not in: " << status.message();
  }
  EXPECT_LT(status.message().size(), 800u) << "a message is for reading";
  for (char c : status.message()) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << "unprintable in: " << status.message();
}

INSTANTIATE_TEST_SUITE_P(Header, SafetensorsLie, testing::ValuesIn(Lies()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SafetensorsHeader, EveryPrefixAndEveryFlippedByteOfAFileIsAnErrorOrStillSafe) {
  const std::string good =
      WithLength(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],)"
                 R"("data_offsets":[0,12]},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})",
                 "0123456789abcdef");
  ASSERT_TRUE(OpenBytes(good).ok());
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(OpenBytes(good.substr(0, n)).ok()) << n;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      MemoryEnv env;
      env.files["f"] = bad;
      auto file = SafetensorsFile::Open(env, "f");
      if (!file.ok()) continue;
      for (const StoredTensor& t : file->tensors()) {
        std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
        EXPECT_TRUE(file->ReadTensor(t.name, bytes).ok());
      }
    }
  }
}

TEST(SafetensorsHeader, AcceptsWhatTheFormatAllows) {
  EXPECT_TRUE(OpenBytes(WithLength("{}")).ok());
  EXPECT_TRUE(OpenBytes(WithLength("{}      ")).ok());
  EXPECT_TRUE(OpenBytes(WithLength(R"({"__metadata__":{}})")).ok());
  EXPECT_TRUE(OpenBytes(WithLength(R"({"__metadata__":null})")).ok());
  // A scalar, empty tensors in several places, many dims, entries out of order, an entry's unknown key.
  EXPECT_TRUE(
      OpenBytes(WithLength(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
                           R"("e":{"dtype":"I8","shape":[3,0,7],"data_offsets":[4,4]},)"
                           R"("f":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},)"
                           R"("m":{"dtype":"U8","shape":[1,1,2,1,2,1],"note":{"a":[1,{}]},"data_offsets":[0,4]}})",
                           "12345678"))
          .ok());
}

TEST(SafetensorsHeader, ListsTypesThatItCannotComputeWith) {
  MemoryEnv env;
  env.files["f"] = WithLength(R"({"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},)"
                              R"("p":{"dtype":"F4","shape":[4],"data_offsets":[2,4]},)"
                              R"("r":{"dtype":"F32","shape":[1,1,1,1,1,1],"data_offsets":[4,8]}})",
                              "12345678");
  auto file = SafetensorsFile::Open(env, "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->Find("q")->ToString(), "F8_E4M3[2]");
  EXPECT_EQ(file->Find("q")->type().status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(file->Find("p")->elements(), 4);
  EXPECT_EQ(file->Find("p")->bytes().v, 2);
  EXPECT_EQ(file->Find("r")->type().status().code(), StatusCode::kUnsupported);
  std::vector<std::byte> out(8);
  EXPECT_EQ(file->ReadAs("q", DType::kF32, out).code(), StatusCode::kUnsupported);
}

TEST(SafetensorsHeader, FormattedHeaderIsPaddedAndParsesBack) {
  for (int extra = 0; extra < 8; ++extra) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pt"}, {"quote\"\n", "\xC3\xA9"}};
    header.tensors.push_back({.name = "w" + std::string(extra, 'x') + "\"\\", .dtype = FindStoredDType("BF16")});
    header.tensors[0].dims = {2, 3};
    header.tensors[0].end = 12;
    const auto bytes = FormatSafetensorsHeader(header);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(bytes->size() % 8, 0u);
    const auto again = ParseSafetensorsHeader(std::string_view(*bytes).substr(8), 12, "f");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->metadata, header.metadata);
    EXPECT_EQ(again->tensors[0].name, header.tensors[0].name);
    EXPECT_EQ(again->tensors[0].dims, header.tensors[0].dims);
  }
}

TEST(SafetensorsHeader, RefusesToWriteNamesThatNoReaderCouldTellApart) {
  const auto format = [](std::vector<std::string> names) {
    SafetensorsHeader header;
    for (std::string& name : names) {
      header.tensors.push_back({.name = std::move(name), .dtype = FindStoredDType("U8"), .dims = {0}});
    }
    return FormatSafetensorsHeader(header).status();
  };
  EXPECT_TRUE(format({"a", "b"}).ok());
  EXPECT_NE(format({"a", "b", "a"}).message().find("'a' would be written twice"), std::string::npos);
  EXPECT_NE(format({"__metadata__"}).message().find("__metadata__"), std::string::npos);
  EXPECT_NE(format({"\xFF"}).message().find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace temper::safetensors_header_test

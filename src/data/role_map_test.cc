#include "data/role_map.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "data/records.h"

namespace temper::role_map_test {
namespace {

// The records of rows with these roles, as "role: content" of each message.
std::string Read(const std::string& rows, const RowReading& reading, RowUse use = RowUse::kAnswers) {
  const ScratchFolder folder;
  EXPECT_TRUE(WriteTextFileAtomically(PosixEnv(), folder / "d.jsonl", rows).ok());
  auto reader = RecordReader::Open(PosixEnv(), folder / "d.jsonl", reading, use);
  if (!reader.ok()) return reader.status().message();
  std::string out;
  RawRow row;
  while (*(*reader)->Next(row)) {
    const auto record = (*reader)->Parse(row);
    if (!record.ok()) return record.status().message();
    const std::vector<Record> records = record->answers.empty() ? std::vector{*record} : record->answers;
    for (const Record& one : records) {
      for (const OrderedJson& message : one.messages) {
        out += message["role"].get<std::string>() + ": " + message["content"].get<std::string>() + "\n";
      }
    }
  }
  return out;
}

const RowReading kReading = {.roles = {{"user", "customer"}, {"assistant", "agent"}, {"assistant", "bot"}}};

TEST(RoleMap, SpeakersOfEveryFormGetTheirRoles) {
  const std::string turns = "user: Hi\nassistant: Yo\n";
  for (const char* row : {
           R"({"messages": [{"role": "customer", "content": "Hi"}, {"role": "agent", "content": "Yo"}]})",
           R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "bot", "content": "Yo"}]})",
           R"([{"role": "customer", "content": "Hi"}, {"role": "agent", "content": "Yo"}])",
           R"({"conversations": [{"from": "customer", "value": "Hi"}, {"from": "bot", "value": "Yo"}]})",
           R"({"prompt": [{"role": "customer", "content": "Hi"}], "completion": [{"role": "agent", "content": "Yo"}]})",
       }) {
    EXPECT_EQ(Read(row, kReading), turns) << row;
  }
  EXPECT_EQ(Read(R"({"prompt": [{"role": "customer", "content": "Hi"}], "chosen": [{"role": "agent", "content": "Yo"}],
                     "rejected": [{"role": "bot", "content": "No"}]})",
                 kReading, RowUse::kPairs),
            turns + "user: Hi\nassistant: No\n");
}

TEST(RoleMap, ColumnsAreRenamedBeforeRoles) {
  RowReading reading = kReading;
  reading.columns = {{"conversations", "chat"}, {"conversations.from", "who"}};
  EXPECT_EQ(Read(R"({"chat": [{"who": "customer", "value": "Hi"}, {"who": "agent", "value": "Yo"}]})", reading),
            "user: Hi\nassistant: Yo\n");
}

TEST(RoleMap, AnUnknownSpeakerIsRefusedWithTheRemedy) {
  const std::string message = Read(R"({"conversations": [{"from": "client", "value": "Hi"}]})", kReading);
  EXPECT_NE(message.find("unknown speaker \"client\""), std::string::npos) << message;
  EXPECT_NE(message.find("--roles user=NAME"), std::string::npos) << message;
}

TEST(RoleMap, TheFieldsOfAPromptAreJoinedByTheSeparator) {
  const auto prompt = [](const std::string& separator) {
    const auto record = MakeRecord(OrderedJson{{"instruction", "a"}, {"input", "b"}, {"context", "c"}, {"output", "d"}},
                                   RecordFormat::kInstruction, "row", separator);
    return record->prompt;
  };
  EXPECT_EQ(prompt("\n"), "a\nb\nc");
  EXPECT_EQ(prompt(kParagraph), "a\n\nb\n\nc");
}

}  // namespace
}  // namespace temper::role_map_test

#include "run/token_key.h"

#include <fmt/format.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "checkpoint/companion_files.h"
#include "format/checksum.h"
#include "format/data_file_name.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {

Result<std::string> TokenKey(Env& env, const OpenedModel& model, const DataRequest& request,
                             const DatasetOptions& options, const ChatTemplate* chat_template,
                             const std::vector<DataInput>& inputs) {
  const TokenizeOptions& t = options.tokenize;
  std::string key = fmt::format("max_seq_len {}\ntrain_on_prompt {}\nskip_bad_rows {}\nvocab {}\n", t.max_seq_len,
                                t.train_on_prompt, options.skip_bad_rows, t.vocab_size);
  const auto add = [&](const std::string& name, const std::string& path) -> Status {
    TEMPER_ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(env, path));
    key += fmt::format("{} {} {}\n", name, digest.bytes.v, digest.checksum);
    return OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(add("program", "/proc/self/exe"));  // another one may tokenize differently
  TEMPER_ASSIGN_OR_RETURN(const auto files, CompanionFiles(env, model.folder()));
  for (const std::string& name : files) TEMPER_RETURN_IF_ERROR(add(name, JoinPath(model.folder(), name)));
  if (chat_template) {
    const std::string sources = chat_template->sources();
    key += fmt::format("template {}\n", ChecksumHex(std::as_bytes(std::span(sources))));
    if (!request.chat_template_kwargs.text.empty()) key += "kwargs " + request.chat_template_kwargs.text + "\n";
    if (request.reasoning_turns == ReasoningTurns::kLast && !FactsOf(request.use).one_text)
      key += "reasoning of last turns\n";
    if (sources.find("strftime_now") != std::string::npos) key += "date " + request.template_date + "\n";
  }
  if (t.long_rows != LongRows::kSplit) key += fmt::format("long rows {}\n", static_cast<int>(t.long_rows));
  const RowFacts& rows = FactsOf(request.use);
  key += fmt::format("read for {}\n", rows.name);
  if (rows.judged) key += fmt::format("pad {}\n", t.pad ? fmt::format("{}", *t.pad) : "none");
  if (t.classes != nullptr) key += "classes " + t.classes->ToJson() + "\n";
  if (t.row_template != nullptr) {
    const std::string& source = t.row_template->source();
    key += fmt::format("row template {}\n", ChecksumHex(std::as_bytes(std::span(source))));
    if (source.find("strftime_now") != std::string::npos) key += "date " + request.template_date + "\n";
  }
  for (const DataInput& input : inputs) {
    const std::filesystem::path name(WithoutCompression(input.path));  // says how the file is read
    TEMPER_RETURN_IF_ERROR(add("data " + Quoted(name.extension().string()), input.path));
    if (input.max_rows != DataInput().max_rows) key += fmt::format("its first {} rows\n", input.max_rows);
    const auto quoted = [](const std::string& text) { return DumpJson(OrderedJson(text), -1, /*ascii=*/true); };
    for (const RowColumn& column : input.reading.columns) {
      key += fmt::format("its {} from {}\n", column.field, quoted(column.column));
    }
    for (const RowRole& role : input.reading.roles) key += fmt::format("its {} is {}\n", role.role, quoted(role.name));
    if (input.reading.separator != kParagraph) key += fmt::format("joined by {}\n", quoted(input.reading.separator));
  }
  return key;
}

}  // namespace temper

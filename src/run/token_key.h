// TokenKey: all that the tokens of a data set depend on, as text. Its checksum names their file (data/token_cache.h).
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/template/chat_template.h"
#include "run/data_request.h"
#include "run/opened_model.h"

namespace temper {

// The contents of `inputs`, of the model's tokenizer and of the template (may be null), settings, and this program.
Result<std::string> TokenKey(Env& env, const OpenedModel& model, const DataRequest& request,
                             const DatasetOptions& options, const ChatTemplate* chat_template,
                             const std::vector<DataInput>& inputs);

}  // namespace temper

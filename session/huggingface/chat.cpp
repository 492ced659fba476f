// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/chat.hpp"

#include <fstream>
#include <iterator>

#include "core/base/error.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t most_template_bytes = uint64_t{16} << 20;

std::string template_text(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return "";
  if (fs::file_size(file, none) > most_template_bytes)
    throw Error(Exit::usage, file.string() + " is larger than 16 MiB");
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// An empty object if there is no such file.
Json object_of(const fs::path& file) {
  const std::string text = template_text(file);
  if (text.empty()) return Json::object();
  Json out = Json::parse_or_null(text);
  if (!out.is_object()) throw Error(Exit::usage, file.string() + " is not a JSON object");
  return out;
}

// "" if there is none.
std::string chat_template_of(const fs::path& directory, const Json& config) {
  if (std::string text = template_text(directory / "chat_template.jinja"); !text.empty()) return text;
  const Json& found = config.get("chat_template");
  if (found.is_string()) return found.text();
  if (found.is_array())
    for (const Json& one : found.list())
      if (one.get("name") == "default" && one.get("template").is_string()) return one.get("template").text();
  return "";
}

}  // namespace

std::vector<int32_t> end_ids(const fs::path& directory) {
  std::vector<int32_t> out;
  const auto take = [&](const Json& id) {
    if (id.is_unsigned() && id.whole() <= INT32_MAX) out.push_back(static_cast<int32_t>(id.whole()));
  };
  for (const char* file : {"config.json", "generation_config.json"}) {
    const Json config = object_of(directory / file);
    const Json& ids = config.get("eos_token_id");
    if (ids.is_array())
      for (const Json& id : ids.list()) take(id);
    else
      take(ids);
  }
  return out;
}

std::string chat_template(const fs::path& directory) {
  return chat_template_of(directory, object_of(directory / "tokenizer_config.json"));
}

}  // namespace eng

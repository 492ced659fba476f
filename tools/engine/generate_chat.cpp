// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/generate_chat.hpp"

#include <algorithm>
#include <ctime>
#include <iostream>

#include "session/huggingface/chat.hpp"
#include "session/run/run_dir.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &day)};
}

Json message(const char* role, const std::string& content) {
  return Json::ordered({{"role", role}, {"content", content}});
}

bool has_template(const fs::path& folder) {
  std::error_code none;
  return !chat_template(folder).empty() || fs::exists(folder / "chat_template.json", none);
}

}  // namespace

Chat::Files chat_files(const GenerateFlags& flags, const Config& config, const std::string& tokenizer,
                       const std::vector<fs::path>& directories) {
  const Section& data = config.section("data");
  const auto own = [&](const char* key) {
    return RunDir::is_run(flags.target) && data.has(key) ? data.string(key) : std::string();
  };
  Chat::Files out{tokenizer, directories.empty() ? fs::path() : fs::absolute(directories[0]), {}, own("date")};
  if (out.date.empty()) out.date = today();
  if (!flags.chat_template.empty()) {
    out.file = fs::absolute(flags.chat_template);
  } else if (const std::string file = own("chat_template"); !file.empty()) {
    out.file = fs::absolute(config.base_dir() / file);
  } else {
    const auto found = std::find_if(directories.begin(), directories.end(), has_template);
    if (found == directories.end())
      throw Error(
          Exit::usage,
          fmt::format("{} has no chat template", directories.empty() ? flags.target : directories[0].string()),
          "there is one where tokenizer_config.json has `chat_template`, or beside it in chat_template.jinja; name "
          "another one with --chat-template FILE. Without --chat the prompt is read as it is");
    out.folder = fs::absolute(*found);
  }
  return out;
}

std::string conversation_of(const Prompt& prompt, const std::optional<std::string>& system) {
  Json row = prompt.row;
  if (row.is_null()) row["messages"] = Json::array({message("user", prompt.text)});
  if (system) {
    const Json& messages = row.get("messages");
    const bool begins = messages.is_array() && messages.size() && messages[0].get("role") == "system";
    if (begins || !row.get("system").is_null())
      throw Error(Exit::usage, "the conversation has a system message, and there is --system", "give one of them");
    row["system"] = *system;
  }
  return row.dump(-1, true);
}

void converse(const Texts& texts, Decoder& decoder, const GenerateFlags& flags, const Chat& chat) {
  const Json begin = flags.system ? Json::array({message("system", *flags.system)}) : Json::array();
  Json messages = begin;
  std::vector<int32_t> read;  // by the decoder
  Texts turn{texts.tokenizer, {}, texts.how};
  print_err("a conversation of up to {} tokens; /new begins another one, the end of the input (Ctrl-D) ends it\n",
            decoder.length());
  for (std::string line;;) {
    write_out("> ");
    flush_out();
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/new") {
      messages = begin;
      continue;
    }
    Json asked = messages;
    asked.push_back(message("user", line));
    try {
      const std::vector<int32_t> ids = chat.prompt(Json::ordered({{"messages", asked}}).dump(-1, true));
      if (ids.size() >= static_cast<size_t>(decoder.length()))
        throw Error(Exit::usage,
                    fmt::format("the conversation has {} tokens, which leaves no room for an answer within {}",
                                ids.size(), decoder.length()),
                    "begin another one: /new; --max-length makes room for longer ones");
      const bool goes_on =
          !read.empty() && read.size() < ids.size() && std::equal(read.begin(), read.end(), ids.begin());
      turn.how.read = goes_on ? read.size() : 0;
      turn.prompts = {ids};
      const WrittenText shown = show_text(turn, decoder, flags);
      write_out("\n");
      read = ids;
      read.insert(read.end(), shown.ids.begin(), shown.ids.end());
      read.resize(static_cast<size_t>(decoder.position()));
      asked.push_back(message("assistant", shown.text));
      messages = asked;
      ++turn.how.sampling.seed;
    } catch (const Error& e) {
      if (e.exit() != Exit::usage) throw;
      print(failure(std::current_exception()));
    }
  }
  write_out("\n");
}

}  // namespace eng

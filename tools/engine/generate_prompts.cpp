// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/generate_prompts.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "session/file.hpp"
#include "session/text/text_out.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

constexpr uint64_t most_prompt_bytes = uint64_t{256} << 20;

Prompt prompt_of_json(const std::string& line, const std::string& where, bool chats) {
  const Json value = Json::parse_or_null(line, true);
  const Json& text = value.is_object() ? value.get("prompt") : value;
  if (text.is_string()) return {text.text()};
  if (chats && value.is_object()) return {{}, value};
  throw Error(
      Exit::usage,
      where + (chats ? " is neither a JSON text nor an object with `messages` or a text `prompt`"
                     : " is neither a JSON text nor an object with a text `prompt`"),
      value.is_object() && !value.get("messages").is_null()
          ? "give --chat for a file of conversations"
          : "write each prompt as \"...\" or {\"prompt\": \"...\"}; a file of plain lines must not end in .jsonl");
}

// A text that is being made, and how it ended.
struct Continued {
  explicit Continued(const std::vector<std::string>& stops) : out(stops) {}
  TextOut out;
  std::string text;
  std::vector<int64_t> ids;
  bool complete = false;
};

}  // namespace

std::vector<Prompt> read_prompts(const std::string& file, bool chats) {
  const std::string all = read_text(file, most_prompt_bytes, Exit::usage);
  const bool json = file.ends_with(".jsonl");
  std::vector<Prompt> out;
  size_t number = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    at = end + 1, ++number;
    if (line.ends_with('\r')) line.pop_back();
    const std::string where = fmt::format("{}:{}", file, number);
    if (line.empty()) throw Error(Exit::usage, where + " is empty", "remove the line");
    out.push_back(json ? prompt_of_json(line, where, chats) : Prompt{line});
  }
  if (out.empty()) throw Error(Exit::usage, file + " has no prompts");
  return out;
}

WrittenText show_text(const Texts& of, Decoder& decoder, const GenerateFlags& flags) {
  using Clock = std::chrono::steady_clock;
  TextOut text(flags.stop);
  WrittenText out;
  Continuation how = of.how;
  how.token = [&](size_t, int32_t id) {
    const std::string shown = text.add(of.tokenizer.decode(id));
    if (flags.ids)
      print_out("{}{}", out.ids.empty() ? "" : " ", id);
    else
      write_out(shown);
    flush_out();
    out.ids.push_back(id), out.text += shown;
    return !text.stopped();
  };
  const auto start = Clock::now();
  auto begun = start;
  continue_texts(decoder, of.prompts, how, [&] { begun = Clock::now(); });
  const auto seconds = [](auto a, auto b) { return std::max(std::chrono::duration<double>(b - a).count(), 1e-9); };
  out.reading = seconds(start, begun), out.writing = seconds(begun, Clock::now());
  out.text += text.rest();
  if (!flags.ids) write_out(text.rest());
  flush_out();
  return out;
}

void print_all(const Texts& of, Decoder& decoder, const GenerateFlags& flags, const std::vector<Prompt>& texts) {
  using Clock = std::chrono::steady_clock;
  std::vector<size_t> order(of.prompts.size());  // those of about equal length together
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return of.prompts[a].size() < of.prompts[b].size(); });
  std::vector<Continued> made(of.prompts.size(), Continued(flags.stop));
  size_t printed = 0, read = 0, written = 0;
  const auto start = Clock::now();
  for (size_t at = 0; at < order.size(); at += decoder.rows()) {
    const size_t n = std::min(decoder.rows(), order.size() - at);
    std::vector<std::vector<int32_t>> prompts;
    for (size_t k = 0; k < n; ++k) prompts.push_back(of.prompts[order[at + k]]), read += prompts.back().size();
    Continuation how = of.how;
    how.token = [&](size_t row, int32_t id) {
      Continued& one = made[order[at + row]];
      one.ids.push_back(id), ++written;
      one.text += one.out.add(of.tokenizer.decode(id));
      return !one.out.stopped();
    };
    continue_texts(decoder, prompts, how);
    for (size_t k = 0; k < n; ++k) made[order[at + k]].complete = true;
    for (; printed < made.size() && made[printed].complete; ++printed) {
      const Continued& one = made[printed];
      const char* end = one.out.stopped()                                      ? "stop"
                        : static_cast<int64_t>(one.ids.size()) == flags.tokens ? "tokens"
                        : of.prompts[printed].size() + one.ids.size() == static_cast<size_t>(decoder.length())
                            ? "length"
                            : "end";
      Json out = texts[printed].row.is_null() ? Json::ordered({{"prompt", texts[printed].text}}) : texts[printed].row;
      out["text"] = one.text + one.out.rest(), out["end"] = end;
      if (flags.ids)
        out["prompt_ids"] = Json(std::vector<int64_t>(of.prompts[printed].begin(), of.prompts[printed].end()));
      if (flags.ids) out["ids"] = Json(one.ids);
      write_out(out.dump(-1, true) + "\n");
    }
    flush_out();
  }
  const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
  print_err("{} prompts of {} tokens, generated {} tokens; {:.1f} tokens/s; {}\n", made.size(), read, written,
            static_cast<double>(read + written) / seconds,
            format_bytes(static_cast<double>(planned_peak(decoder.setup()))));
}

}  // namespace eng

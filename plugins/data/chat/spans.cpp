// SPDX-License-Identifier: Apache-2.0
#include "spans.hpp"

#include <algorithm>
#include <optional>

#include "../failure.hpp"
#include "../jinja/text.hpp"
#include "../json_text.hpp"

namespace text_data {
namespace {

constexpr const char* private_characters[] = {"\xee\x80\x80", "\xee\x9f\xbf", "\xef\x9a\xbc"};

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
}

std::size_t without_space(std::string_view text) {
  return jinja::stripped(text, false, true).size();
}

bool blank_text(std::string_view text) {
  return without_space(text) == 0;
}

// Renders a conversation, and variants of it.
class Rendering {
 public:
  // `prompt`: with the beginning of an answer after the conversation.
  Rendering(const ChatTemplate& chat, const Conversation& conversation, const std::string& where, bool prompt = false)
      : chat_(chat),
        conversation_(conversation),
        where_(where),
        prompt_(prompt),
        whole_(required(conversation.messages, prompt)) {
    for (const char* one : private_characters)
      if (whole_.text.find(one) == std::string::npos && mark_.empty()) mark_ = one;
    if (mark_.empty()) fail("the row uses characters (U+E000 and others) that are needed to find its answers");
  }

  const jinja::Rendered& whole() const { return whole_; }

  [[noreturn]] void fail(const std::string& what) const { throw Failure(ENG_INVALID, where_ + ": " + what); }

  // Every text must be somewhere in the rendering.
  void check_all_there() const {
    const std::vector<Message>& messages = conversation_.messages;
    std::vector<Message> marked;
    for (std::size_t i = 0; i < messages.size(); ++i) marked.push_back(with_content(messages[i], mark(i)));
    const std::optional<std::string> all = tried(marked, prompt_);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].empty_content || (all && all->find(mark(i)) != std::string::npos)) continue;
      std::vector<Message> one = messages;
      one[i] = marked[i];
      const std::optional<std::string> text = tried(one, prompt_);
      if (text && text->find(mark(i)) == std::string::npos)
        fail("the chat template drops message " + std::to_string(i + 1) + ", of the role \"" +
             printable(messages[i].role, 40) + "\": use a template that has a place for it, or remove such messages");
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].calls) continue;
      std::vector<Message> without = messages;
      without[i] = without_entry(with_content(messages[i], "-"), "tool_calls");
      std::vector<Message> with = messages;
      with[i] = with_content(messages[i], "-");
      const std::optional<std::string> text = tried(without, prompt_), other = tried(with, prompt_);
      if (text && other && *text == *other)
        fail("the chat template drops the tool calls of message " + std::to_string(i + 1));
    }
    if (!conversation_.has_tools) return;
    Conversation bare = conversation_;
    bare.has_tools = false, bare.tools = jinja::None();
    try {
      if (chat_.render(messages, bare, prompt_).text == whole_.text)
        fail("the row has tools, and the chat template has no place for them");
    } catch (const jinja::Error&) {  // so it needs them
    }
  }

  // The span of answer i, by prefixes and by another content in its place.
  Span answer(std::size_t i) const {
    const std::string& text = whole_.text;
    const std::optional<std::string> before = tried(first(i), true);
    const bool begins = before && text.starts_with(*before);
    const std::string marked = mark(i);
    std::vector<Message> other = conversation_.messages, until = first(i + 1);
    other[i] = until[i] = with_content(conversation_.messages[i], marked);
    const std::optional<std::string> changed = tried(other, false), cut = tried(until, false);
    const std::size_t at = changed ? changed->find(marked) : std::string::npos;
    const std::size_t cut_at = cut ? cut->find(marked) : std::string::npos;
    if (at == std::string::npos || cut_at == std::string::npos)
      return by_prefixes(i, begins ? before->size() : 0, begins);
    if (changed->find(marked, at + 1) != std::string::npos)
      fail("the chat template writes message " + std::to_string(i + 1) + " twice, so its answer cannot be told");
    const std::string_view rest = std::string_view(*changed).substr(at + marked.size());
    const std::string_view tail = std::string_view(*cut).substr(cut_at + marked.size());
    const std::size_t end_of_turn = turn_end(i, tail, rest, until, marked);
    const std::string_view after = rest.substr(end_of_turn);
    std::size_t begin = begins ? before->size() : std::string::npos;
    // The place of the content, if all before it is the same with another content.
    const std::size_t content = text.starts_with(std::string_view(*changed).substr(0, at)) ? at : std::string::npos;
    if (begin == std::string::npos || (content != std::string::npos && (begin > content || headed(begin, content))))
      begin = content;
    if (!begins && content != std::string::npos && before && cut->starts_with(*before) && before->size() < cut_at) {
      // Earlier text is another one in the whole conversation. Between prompt and content the answer has the same head.
      const std::string_view head = std::string_view(*cut).substr(before->size(), cut_at - before->size());
      const bool same = std::string_view(text).substr(0, content).ends_with(head);
      if (same && !headed(content - head.size(), content)) begin = content - head.size();
    }
    if (begin == std::string::npos || !text.ends_with(after) || text.size() - after.size() < begin)
      fail("the chat template does not tell where the answer of message " + std::to_string(i + 1) +
           " begins and ends: put {% generation %} and {% endgeneration %} around answers in it");
    return {begin, text.size() - after.size()};
  }

  // The text that ends answer i, which other messages follow.
  std::string end(std::size_t i) const {
    const std::string marked = mark(i);
    std::vector<Message> other = conversation_.messages, until = first(i + 1);
    other[i] = until[i] = with_content(conversation_.messages[i], marked);
    const std::optional<std::string> changed = tried(other, false), cut = tried(until, false);
    const std::size_t at = changed ? changed->find(marked) : std::string::npos;
    const std::size_t cut_at = cut ? cut->find(marked) : std::string::npos;
    if (at == std::string::npos || cut_at == std::string::npos) return "";
    const std::string_view tail = std::string_view(*cut).substr(cut_at + marked.size());
    const std::string_view rest = std::string_view(*changed).substr(at + marked.size());
    return std::string(tail.substr(0, turn_end(i, tail, rest, until, marked)));
  }

 private:
  std::string mark(std::size_t i) const { return mark_ + std::to_string(i) + mark_; }

  std::vector<Message> first(std::size_t n) const {
    return {conversation_.messages.begin(), conversation_.messages.begin() + static_cast<std::ptrdiff_t>(n)};
  }

  jinja::Rendered required(const std::vector<Message>& messages, bool prompt) const {
    try {
      return chat_.render(messages, conversation_, prompt);
    } catch (const jinja::Error& error) {
      fail("the chat template " + chat_.place() + " fails, in its " + printable(error.what(), 400));
    }
  }
  std::optional<std::string> tried(const std::vector<Message>& messages, bool prompt) const {
    if (messages.empty()) return std::nullopt;
    try {
      return chat_.render(messages, conversation_, prompt).text;
    } catch (const jinja::Error&) {
      return std::nullopt;
    }
  }

  // True if the template writes no prompt for an answer, and so [begin, content) holds the head of the answer.
  bool headed(std::size_t begin, std::size_t content) const {
    return !chat_.writes_prompts(conversation_) &&
           !blank_text(std::string_view(whole_.text).substr(begin, content - begin));
  }

  // The bytes of the end of turn, at the beginning of `rest`, which follows the content; `tail` follows it where the
  // conversation ends there. White space behind the end of turn is not part of it.
  std::size_t turn_end(std::size_t i, std::string_view tail, std::string_view rest, const std::vector<Message>& until,
                       const std::string& marked) const {
    const bool last = i + 1 == conversation_.messages.size();
    std::string next;
    if (last) {  // as if it went on
      const std::optional<std::string> with_prompt = tried(until, true);
      const std::size_t at = with_prompt ? with_prompt->find(marked) : std::string::npos;
      next = at == std::string::npos ? std::string(tail) : with_prompt->substr(at + marked.size());
    }
    std::size_t n = common_prefix(tail, last ? std::string_view(next) : rest);
    if (n < tail.size()) {
      // The two go on in different ways, maybe in the middle of a token such as <|user|>: the part up to its beginning.
      const std::size_t shared = without_space(tail.substr(0, n)), open = tail.substr(0, shared).find_last_of("<[");
      const bool inside = open != std::string_view::npos &&
                          tail.substr(open, shared - open).find_first_of(">]") == std::string_view::npos;
      n = inside ? open : shared;
    }
    if (last && blank_text(tail.substr(0, n)) && !blank_text(tail)) n = tail.size();  // only the conversation ends
    const std::size_t bare = without_space(tail.substr(0, n));
    return bare > 0 ? bare : n;
  }

  // For an answer whose content is not written, such as a call of a tool.
  Span by_prefixes(std::size_t i, std::size_t begin, bool begins) const {
    const std::optional<std::string> until = tried(first(i + 1), false);
    const bool blank_head = until && begins && !headed(begin, without_space(*until));
    if (!until || !begins || !whole_.text.starts_with(*until) || until->size() < begin ||
        !(blank_head || chat_.writes_prompts(conversation_)))
      fail("the chat template does not tell where the answer of message " + std::to_string(i + 1) +
           " begins and ends: put {% generation %} and {% endgeneration %} around answers in it");
    return {begin, std::max(begin, without_space(*until))};
  }

  const ChatTemplate& chat_;
  const Conversation& conversation_;
  const std::string& where_;
  const bool prompt_;
  jinja::Rendered whole_;
  std::string mark_;
};

}  // namespace

MaskedText masked_text(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                       const std::string& where) {
  const Rendering rendering(chat, conversation, where);
  rendering.check_all_there();
  MaskedText out;
  out.text = rendering.whole().text;
  const auto add = [&](const Span& span, float weight) {
    if (span.first >= span.second || !(weight > 0)) return;
    out.spans.push_back(span);
    out.weights.push_back(weight);
  };
  if (train_on == TrainOn::all) {
    for (std::size_t i = 0; i < conversation.messages.size(); ++i)
      if (conversation.messages[i].weight != 1)
        rendering.fail("message " + std::to_string(i + 1) +
                       " has a weight, and with [data] train_on = \"all\" the text trains as a whole: use "
                       "\"assistant\", or give the row the weight");
    add({0, out.text.size()}, conversation.weight);
    return out;
  }
  std::vector<std::size_t> answers;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.messages[i].role == "assistant") answers.push_back(i);
  const std::vector<Span>& generated = rendering.whole().generated;
  const bool marked = chat.marks_generation(conversation),
             each = train_on == TrainOn::assistant && !conversation.flagged;
  if (marked && !each && generated.size() != answers.size())
    rendering.fail("the chat template marks " + std::to_string(generated.size()) + " answers of " +
                   std::to_string(answers.size()) +
                   ", so it is not known which of them [data] train_on, or the flag of a message, means");
  if (marked && each) {
    for (const Span& span : generated) add(span, conversation.weight);
    return out;
  }
  for (std::size_t k = train_on == TrainOn::last && !answers.empty() ? answers.size() - 1 : 0; k < answers.size();
       ++k) {
    const Message& message = conversation.messages[answers[k]];
    if (message.trains && message.weight > 0)
      add(marked ? generated[k] : rendering.answer(answers[k]), message.weight * conversation.weight);
  }
  return out;
}

std::string whole_text(const ChatTemplate& chat, const Conversation& conversation, bool answer,
                       const std::string& where) {
  if (answer && conversation.messages.back().role == "assistant")
    throw Failure(ENG_INVALID, where + " ends with an answer: remove the last message, or add another one after it");
  const Rendering rendering(chat, conversation, where, answer);
  rendering.check_all_there();
  return rendering.whole().text;
}

std::string end_of_answer(const ChatTemplate& chat) {
  const std::string where = "a sample";
  const Conversation sample = read_conversation(
      R"({"messages": [{"role": "user", "content": "-"}, {"role": "assistant", "content": "-"}, {"role": "user", "content": "-"}]})",
      "messages", where);
  try {
    return std::string(jinja::stripped(Rendering(chat, sample, where).end(1), true, true));
  } catch (const Failure&) {  // no conversation of this kind
    return "";
  }
}

}  // namespace text_data

// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.json: byte-level BPE. Whatever the file asks for is either done as the `tokenizers`
// library does it, or refused with the place in the file.
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "failure.hpp"
#include "hash.hpp"
#include "huggingface_file.hpp"
#include "pattern.hpp"
#include "tokenizer.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

class HuggingFace final : public Tokenizer {
 public:
  explicit HuggingFace(const std::string& file) : HuggingFace(read_huggingface(file)) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::unique_ptr<Work> work = borrow();
    work->ids = &ids;
    // First the tokens that are found in the text as it is, then those in the rest after normalisation.
    each_part(raw_, valid_utf8(text, work->valid), ids, [&](std::string_view part) {
      each_part(normalised_, normalise(part, work->normal), ids, [&](std::string_view rest) {
        work->exact = std::any_of(steps_.begin(), steps_.end(), [&](const HuggingFaceFile::Step& step) {
          return step.pattern && step.pattern->needs_exact(rest);
        });
        split(0, rest, *work);
      });
    });
    give_back(std::move(work));
  }

  void decode(int32_t id, std::string& text) const override { text += pieces_[static_cast<std::size_t>(id)]; }
  std::string libraries() const override {
    char pcre[64] = {};
    pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    return std::string("Unicode ") + unicode_version + ", PCRE2 " + pcre + ", utf8proc " + utf8proc_version();
  }

 private:
  struct Work {
    Bpe::Scratch bpe;
    MatchState match;
    std::string valid, normal, prefixed;
    std::vector<int32_t>* ids = nullptr;
    bool exact = false;  // see Pattern
  };

  explicit HuggingFace(HuggingFaceFile file)
      : bpe_(std::move(file.bpe)), form_(file.form), steps_(std::move(file.steps)), pieces_(std::move(file.pieces)) {
    info_ = std::move(file.info);
    prefix_ = std::move(file.prefix);
    suffix_ = std::move(file.suffix);
    std::vector<AddedToken> raw, normalised;
    for (HuggingFaceFile::Added& added : file.added) {
      if (added.normalised) {
        std::string kept;
        added.token.content = std::string(normalise(added.token.content, kept));
      }
      if (!added.token.content.empty()) (added.normalised ? normalised : raw).push_back(std::move(added.token));
    }
    raw_.set(std::move(raw));
    normalised_.set(std::move(normalised));
  }

  // Appends the ids of the added tokens in `text` and calls take(part) for each part between them.
  template <class Take>
  static void each_part(const AddedTokens& tokens, std::string_view text, std::vector<int32_t>& ids, Take take) {
    std::size_t at = 0;
    AddedTokens::Found found{};
    while (tokens.next(text, found.after, at, &found)) {
      if (found.begin > at) take(text.substr(at, found.begin - at));
      ids.push_back(found.id);
      at = found.end;
    }
    if (at < text.size()) take(text.substr(at));
  }

  std::string_view normalise(std::string_view text, std::string& kept) const {
    if (form_ == 0) return text;
    // No character below U+0300 composes with its neighbour, and none below U+0080 is another spelling of anything.
    const unsigned char first_other = form_ == nfc_form ? 0xcc : 0x80;
    std::size_t plain = 0;
    while (plain < text.size() && static_cast<unsigned char>(text[plain]) < first_other) ++plain;
    if (plain == text.size()) return text;
    kept.clear();
    std::size_t begin = 0;  // of what is not normalised yet
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      if (!newer_than_normalisers(utf8_decode(text.substr(at), &length))) continue;
      normalise_to(kept, text.substr(begin, at - begin));
      kept += text.substr(at, length);
      begin = at + length;
    }
    normalise_to(kept, text.substr(begin));
    return kept;
  }

  void normalise_to(std::string& kept, std::string_view text) const {
    if (text.empty()) return;
    utf8proc_uint8_t* out = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &out, static_cast<utf8proc_option_t>(form_));
    if (size < 0) {
      std::free(out);
      throw Failure(size == UTF8PROC_ERROR_NOMEM ? ENG_NO_MEMORY : ENG_INTERNAL,
                    std::string("Unicode normalisation failed: ") + utf8proc_errmsg(size));
    }
    kept.append(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
    std::free(out);
  }

  void split(std::size_t at, std::string_view text, Work& work) const {
    if (text.empty()) return;
    if (at == steps_.size()) return bpe_.encode(text, work.bpe, *work.ids);
    const HuggingFaceFile::Step& step = steps_[at];
    if (step.prefix_space && text[0] != ' ') {  // only in the last step
      work.prefixed.assign(1, ' ').append(text);
      text = work.prefixed;
    }
    if (!step.pattern) return split(at + 1, text, work);
    std::size_t done = 0, begin = 0, end = 0;
    while (step.pattern->next(text, done, work.exact, work.match, &begin, &end)) {
      if (begin > done && !(step.remove && step.invert)) split(at + 1, text.substr(done, begin - done), work);
      if (!step.remove || step.invert) split(at + 1, text.substr(begin, end - begin), work);
      done = end;
    }
    if (done < text.size() && !(step.remove && step.invert)) split(at + 1, text.substr(done), work);
  }

  std::unique_ptr<Work> borrow() const {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto work = std::move(free_.back());
        free_.pop_back();
        return work;
      }
    }
    return std::make_unique<Work>();
  }
  void give_back(std::unique_ptr<Work> work) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(work));
  }

  Bpe bpe_;
  int form_;
  std::vector<HuggingFaceFile::Step> steps_;
  std::vector<std::string> pieces_;
  AddedTokens raw_, normalised_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Work>> free_;  // as many as there were callers at once
};

}  // namespace

std::unique_ptr<Tokenizer> open_huggingface(const std::string& file) {
  return std::make_unique<HuggingFace>(file);
}

}  // namespace text_data

// SPDX-License-Identifier: Apache-2.0
// The tokenizers of a tokenizer.json, and of files of ranks. Whatever the file asks for is either done as the
// `tokenizers` library does it, or refused with the place in the file.
#include <utf8proc.h>

#include <mutex>
#include <set>
#include <utility>

#include "failure.hpp"
#include "huggingface_file.hpp"
#include "ranks.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

class HuggingFace final : public Tokenizer {
 public:
  HuggingFace(HuggingFaceFile file, const std::string& path)
      : bpe_(std::move(file.bpe)),
        unigram_(std::move(file.unigram)),
        word_piece_(std::move(file.word_piece)),
        normaliser_(std::move(file.normaliser)),
        splitter_(std::move(file.splitter)),
        pieces_(std::move(file.pieces)),
        cuttable_(file.cuttable) {
    info_ = std::move(file.info);
    prefix_ = std::move(file.prefix);
    suffix_ = std::move(file.suffix);
    std::vector<AddedToken> raw, normalised;
    std::set<std::string> known;  // the normalised ones
    const MatchState state;
    for (const FileToken& added : file.added) {
      AddedToken token = added.found();
      if (!added.normalised) {
        raw.push_back(std::move(token));
        continue;
      }
      Normaliser::Buffers buffers;
      bool moved = false;
      token.content = std::string(normaliser_.apply(token.content, buffers, state, &moved));
      if (token.content.empty()) continue;
      if (!known.insert(token.content).second)
        throw Failure(ENG_UNSUPPORTED, path + ": added_tokens: two of them are the same text after the normalizer, " +
                                           printable(token.content, 40) + ", which is not supported");
      normalised.push_back(std::move(token));
    }
    raw_.set(std::move(raw));
    normalised_.set(std::move(normalised));
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::unique_ptr<Work> work = borrow();
    text = valid_utf8(text, work->valid);
    const Splitter::Take take = [&](std::string_view word) {
      if (!unigram_.empty())
        unigram_.encode(word, work->unigram, work->bpe.cache, ids);
      else if (!word_piece_.empty())
        word_piece_.encode(word, work->bpe.cache, ids);
      else
        bpe_.encode(word, work->bpe, ids);
    };
    // First the tokens that are found in the text as it is, then those in the rest after normalisation.
    raw_.each_part(text, ids, [&](std::string_view part) {
      bool moved = part.data() != text.data();
      const std::string_view normal = normaliser_.apply(part, work->normal, work->match, &moved);
      normalised_.each_part(normal, ids, [&](std::string_view rest) {
        splitter_.split(rest, !moved && rest.data() == normal.data(), work->split, work->match, take);
      });
    });
    give_back(std::move(work));
  }

  void decode(int32_t id, std::string& text) const override { text += pieces_[static_cast<std::size_t>(id)]; }
  bool cuttable() const override { return cuttable_; }
  std::string libraries() const override {
    char pcre[64] = {};
    pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    return std::string("Unicode ") + unicode_version + ", PCRE2 " + pcre + ", patterns 2, utf8proc " +
           utf8proc_version() + (unigram_.empty() ? "" : ", scores 2");
  }

 private:
  struct Work {
    Bpe::Scratch bpe;
    Unigram::Scratch unigram;
    Splitter::Scratch split;
    Normaliser::Buffers normal;
    MatchState match;
    std::string valid;
  };

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
  Unigram unigram_;
  WordPiece word_piece_;
  Normaliser normaliser_;
  Splitter splitter_;
  std::vector<std::string> pieces_;
  AddedTokens raw_, normalised_;
  bool cuttable_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Work>> free_;  // as many as there were callers at once
};

}  // namespace

std::unique_ptr<Tokenizer> open_huggingface(const std::string& file) {
  return std::make_unique<HuggingFace>(read_huggingface(file), file);
}

std::unique_ptr<Tokenizer> open_tiktoken(const std::string& file) {
  return std::make_unique<HuggingFace>(read_tiktoken(file), file);
}

std::unique_ptr<Tokenizer> open_tekken(const std::string& file) {
  return std::make_unique<HuggingFace>(read_tekken(file), file);
}

}  // namespace text_data

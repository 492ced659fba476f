// SPDX-License-Identifier: Apache-2.0
#include "session/train/observer_texts.hpp"

#include <algorithm>

#include "session/checkpoint/convert.hpp"
#include "session/text/sampler.hpp"

namespace eng {
namespace {

// A request that is refused, with the status that says why.
struct Refused {
  eng_status status;
  std::string text;
};

}  // namespace

ObserverTexts::ObserverTexts(Trainer& trainer) : trainer_(trainer) {
  const Setup& setup = trainer.setup();
  if (!setup.sampling || setup.plan.ranks.world.rank) return;
  const Config& config = trainer.config();
  decoder_ = std::make_unique<Decoder>(config, trainer.registry(), setup.sampling,
                                       setup.sampling->model.sequence_length, "lower sample_length of [[observers]]");
  if (!config.has_data()) return;
  const Section& data = config.section("data");
  if (data.has("tokenizer") && !data.string("tokenizer").empty())
    tokenizer_.emplace(trainer.registry(), data.string("tokenizer"), config.base_dir());
}

void ObserverTexts::take_weights() {
  const std::vector<TensorShare> own = decoder_ ? parameters(decoder_->setup().plan) : std::vector<TensorShare>();
  const Fill fill = decoder_ ? decoder_->fill() : Fill();
  std::vector<char> raw, ready;
  const Plan& plan = trainer_.setup().plan;
  for (const TensorShare& t : parameters(plan)) {
    const Tensor& tensor = plan.tensors[t.id];
    const bool whole = !tensor.part && tensor.cut.count == 1 && plan.ranks.pipeline == 1;
    if (!decoder_ && whole) continue;  // the first rank has all of it
    const auto to = std::find_if(own.begin(), own.end(), [&](const TensorShare& one) { return one.name == t.name; });
    const uint64_t all = element_count(t.shape, t.name), most = (uint64_t{1} << 20) / dtype_size(t.dtype);
    for (uint64_t at = 0; at < all; at += most) {
      const uint64_t some = std::min(most, all - at);
      raw.resize(some * dtype_size(t.dtype));
      trainer_.gather(t, at, some, raw.data());
      if (to == own.end()) continue;
      ready.resize(some * dtype_size(to->dtype));
      convert(t.dtype, raw.data(), to->dtype, ready.data(), some);
      fill(*to, at, some, ready.data());
    }
  }
  if (decoder_) decoder_->ready();
  taken_ = trainer_.step();
}

void ObserverTexts::check_request(const std::string& observer, int64_t length, const eng_sample* asked,
                                  const eng_sampled* out) const {
  const auto need = [](bool right, const std::string& what) {
    if (!right) throw Refused{ENG_INVALID, "a request of a text: " + what};
  };
  need(asked && out, "the request or the place for its result is NULL");
  need(asked->struct_size >= sizeof(eng_sample), "struct_size of the request is too small");
  need(out->struct_size >= sizeof(eng_sampled), "struct_size of the result is too small");
  if (!length)
    throw Refused{
        ENG_PRECONDITION,
        fmt::format("observer {} asks for a text, and none is planned: set sample_length of its [[observers]] "
                    "entry to the most positions of a text, prompt and new tokens together",
                    observer)};
  need(!!asked->prompt + (asked->n_ids > 0) == 1, "exactly one of prompt and ids must be given");
  need(!asked->n_ids || asked->ids, "ids is NULL");
  need(asked->tokens >= 1, fmt::format("tokens = {} is below 1", asked->tokens));
  need(asked->temperature >= 0, fmt::format("temperature = {} is below 0", asked->temperature));
  need(!asked->prompt || tokenizer_, "there is no tokenizer for the prompt: give ids, or set data.tokenizer");
}

std::vector<int32_t> ObserverTexts::prompt(const eng_sample& asked) const {
  std::vector<int32_t> ids(asked.ids, asked.ids + asked.n_ids);
  if (asked.prompt) {
    const Section& data = trainer_.config().section("data");
    ids = tokenizer_->encode(asked.prompt, data.has("special_tokens") && data.boolean("special_tokens"));
  }
  if (ids.empty()) throw Refused{ENG_INVALID, "a request of a text: the prompt is empty"};
  const int64_t vocabulary = trainer_.setup().model.info.vocabulary;
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      throw Refused{ENG_INVALID,
                    fmt::format("a request of a text: the prompt has id {}, the model has {} ids", id, vocabulary)};
  return ids;
}

void ObserverTexts::write(const eng_sample& asked, const std::vector<int32_t>& prompt) {
  const int64_t vocabulary = trainer_.setup().model.info.vocabulary;
  const int64_t known = tokenizer_ ? std::min(vocabulary, tokenizer_->info().vocabulary) : vocabulary;
  const std::set<int32_t> ends = tokenizer_ ? ends_of_text(*tokenizer_, {}) : std::set<int32_t>();
  ids_.clear(), text_.clear();
  decoder_->reset();
  decoder_->feed(prompt);
  const auto logits = decoder_->logits().first(static_cast<size_t>(known));
  Sampler sampler({asked.temperature, 0, 1.0, asked.seed});
  for (int64_t k = 0; k < asked.tokens; ++k) {
    const int32_t id = sampler.next(logits, static_cast<uint64_t>(k));
    if (ends.count(id)) break;
    ids_.push_back(id);
    if (tokenizer_) text_ += tokenizer_->decode(id);
    if (k + 1 < asked.tokens) decoder_->feed({&id, 1});
  }
}

eng_status ObserverTexts::sample(const std::string& observer, int64_t length, const eng_sample* asked, eng_sampled* out,
                                 eng_error* error, const std::function<void()>& weights) noexcept {
  try {
    check_request(observer, length, asked, out);
    const std::vector<int32_t> ids = prompt(*asked);
    const auto n = static_cast<int64_t>(ids.size());
    if (n > length || asked->tokens > length - n)
      throw Refused{ENG_OUT_OF_RANGE,
                    fmt::format("observer {} asks for a text of {} and {} new tokens, its sample_length is {}: raise "
                                "it, or ask for less",
                                observer, n, asked->tokens, length)};
    if (taken_ != trainer_.step()) weights();
    write(*asked, ids);
    out->n = static_cast<uint32_t>(ids_.size()), out->ids = ids_.data();
    out->text = tokenizer_ ? text_.c_str() : nullptr, out->bytes = text_.size();
    return ENG_OK;
  } catch (const Refused& why) {
    return report(error, why.status, why.text);
  } catch (const std::exception& e) {
    if (!failed_) failed_ = std::current_exception();
    return report(error, ENG_UNAVAILABLE, e.what());
  }
}

void ObserverTexts::check() {
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
}

}  // namespace eng

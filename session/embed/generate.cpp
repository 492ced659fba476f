// SPDX-License-Identifier: Apache-2.0
// Texts of a session's present weights.
#include "session/checkpoint/convert.hpp"
#include "session/embed/lent.hpp"
#include "session/text/continuation.hpp"

namespace eng {
namespace {

void check(const eng_generate_request& r) {
  const auto refuse = [](const std::string& text) { throw Error(Exit::usage, text); };
  if (!!r.prompt + (r.n_ids > 0) != 1) refuse("exactly one of prompt and ids must be given");
  if (r.n_ids && !r.ids) refuse("ids is NULL");
  if (r.n_prompts && (r.prompt || !r.ends)) refuse("several prompts are given as ids, with their ends");
  if (r.max_length < 0) refuse(fmt::format("max_length = {} is below 0", r.max_length));
  if (r.tokens < 1) refuse(fmt::format("tokens = {} is below 1", r.tokens));
  if (r.top_k < 0) refuse(fmt::format("top_k = {} is below 0", r.top_k));
  if (!(r.temperature >= 0)) refuse(fmt::format("temperature = {} is below 0", r.temperature));
  if (!(r.top_p > 0 && r.top_p <= 1)) refuse(fmt::format("top_p = {} must be above 0 and at most 1", r.top_p));
  if (!(r.n_prompts ? !!r.token_of : !!r.token)) refuse("token is NULL: nobody takes the text");
}

// The prompts of a request that gives ids.
std::vector<std::vector<int32_t>> prompts_of(const eng_generate_request& r) {
  if (!r.n_prompts) return {{r.ids, r.ids + r.n_ids}};
  std::vector<std::vector<int32_t>> out;
  uint64_t first = 0;
  for (uint64_t k = 0; k < r.n_prompts; ++k) {
    if (r.ends[k] < first || r.ends[k] > r.n_ids || (k + 1 == r.n_prompts && r.ends[k] != r.n_ids))
      throw Error(Exit::usage,
                  fmt::format("ends[{}] = {}: ends grow up to the number of ids, {}", k, r.ends[k], r.n_ids));
    out.emplace_back(r.ids + first, r.ids + r.ends[k]);
    first = r.ends[k];
  }
  return out;
}

}  // namespace

const Tokenizer& Embedded::tokenizer() {
  need_sound();
  if (tokenizer_) return *tokenizer_;
  const Config& config = opening_->opened.config;
  const Section& data = config.section("data");
  if (!data.has("tokenizer") || data.string("tokenizer").empty())
    throw Error(Exit::usage, "this session has no tokenizer", "set data.tokenizer, for example \"bytes\", or use ids");
  const Turn turn(Turn::For::setup);
  return tokenizer_.emplace(*opening_->opened.registry, data.string("tokenizer"), config.base_dir());
}

// With copies of the present weights.
std::unique_ptr<Decoder> Embedded::decoder(int64_t length, int64_t rows) {
  const Config& config = opening_->opened.config;
  const Turn turn(Turn::For::setup);
  kept_.reset();
  Readable readable;
  readable.sequences = rows;
  Setup setup = make_setup(config, *opening_->opened.registry, length, {}, nullptr, readable);
  setup.stored = setup.plan.tensors.size();
  auto out = std::make_unique<Decoder>(config, *opening_->opened.registry,
                                       std::make_shared<const Setup>(std::move(setup)), length, "ask for fewer tokens");
  const Fill fill = out->fill();
  sound([&] {
    for (const TensorShare& to : parameters(out->setup().plan)) {
      const Tensor& t = find(to.name, to.role);
      const uint64_t all = element_count(t.desc), most = (uint64_t{1} << 20) / dtype_size(t.desc.dtype);
      std::vector<char> raw, ready;
      for (uint64_t at = 0; at < all; at += most) {
        const uint64_t some = std::min(most, all - at);
        raw.resize(some * dtype_size(t.desc.dtype)), ready.resize(some * dtype_size(to.dtype));
        gather(t, at, some, raw.data());
        convert(t.desc.dtype, raw.data(), to.dtype, ready.data(), some);
        fill(to, at, some, ready.data());
      }
    }
  });
  out->ready();
  return out;
}

void Embedded::generate(const eng_generate_request& r) {
  check(r);
  need_started();
  const Config& config = opening_->opened.config;
  const Section& data = config.section("data");
  std::optional<Tokenizer> other;
  if (r.tokenizer) other.emplace(*opening_->opened.registry, r.tokenizer, std::filesystem::current_path());
  const bool own = data.has("tokenizer") && !data.string("tokenizer").empty();
  const Tokenizer* const tokenizer = other ? &*other : own ? &this->tokenizer() : nullptr;
  if (r.prompt && !tokenizer)
    throw Error(Exit::usage, "there is no tokenizer for the prompt", "name one, such as \"bytes\", or give ids");
  std::vector<std::vector<int32_t>> prompts = prompts_of(r);
  if (r.prompt) prompts = {tokenizer->encode(r.prompt, data.has("special_tokens") && data.boolean("special_tokens"))};
  const eng_model_info& model = opening_->setup.model.info;
  if (r.max_length && model.max_length && r.max_length > model.max_length)
    throw Error(Exit::usage, fmt::format("max_length = {} is more than the {} positions of the model", r.max_length,
                                         model.max_length));
  int64_t length = 0;
  for (const std::vector<int32_t>& ids : prompts) {
    if (ids.empty()) throw Error(Exit::usage, "the prompt is empty", "give at least one token");
    for (const int32_t id : ids)
      if (id < 0 || id >= model.vocabulary)
        throw Error(Exit::usage, fmt::format("the prompt has id {}, the model has {} ids", id, model.vocabulary));
    const auto n = static_cast<int64_t>(ids.size());
    const int64_t limit = r.max_length ? r.max_length : model.max_length ? model.max_length : n + r.tokens;
    if (n >= limit)
      throw Error(Exit::usage, fmt::format("the prompt has {} tokens, which leaves no room for new ones within the {} "
                                           "positions of the {}",
                                           n, limit, r.max_length ? "sequence" : "model"));
    length = std::max(length, std::min(limit, n + r.tokens));
  }
  const int64_t positions = r.max_length ? r.max_length : length, rows = static_cast<int64_t>(prompts.size());
  const bool fits = kept_ && kept_length_ == positions && static_cast<int64_t>(kept_->rows()) == rows;
  if (!fits || changed_ || written_ || !writable_.empty())
    kept_ = decoder(positions, rows), kept_length_ = positions, changed_ = false;
  struct GiveBack {  // a decoder goes as it came: alone
    std::unique_ptr<Decoder>& what;
    const bool keep;
    ~GiveBack() {
      if (keep) return;
      const Turn turn(Turn::For::setup);
      what.reset();
    }
  } give_back{kept_, forward()};
  Continuation how;
  how.tokens = r.tokens;
  how.vocabulary = tokenizer ? std::min(model.vocabulary, tokenizer->info().vocabulary) : model.vocabulary;
  if (tokenizer) how.ends = ends_of_text(*tokenizer, text_directories(config));
  how.sampling = {r.temperature, r.top_k, r.top_p, r.seed};
  how.token = [&](size_t prompt, int32_t id) {
    const std::string bytes = tokenizer ? tokenizer->decode(id) : "";
    return (r.n_prompts ? r.token_of(r.data, prompt, id, bytes.data(), bytes.size())
                        : r.token(r.data, id, bytes.data(), bytes.size())) != 0;
  };
  how.feed = [&](std::span<const int32_t> some) {
    const Turn turn(Turn::For::program);
    kept_->feed(some);
  };
  continue_texts(*kept_, prompts, how);
}

}  // namespace eng

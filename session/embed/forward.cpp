// SPDX-License-Identifier: Apache-2.0
// Forwards of a session, without a step: logits, and log-probabilities of tokens. Sessions that do nothing else.
#include <cmath>
#include <numeric>

#include "session/data/fields.hpp"
#include "session/embed/lent.hpp"
#include "session/planning/fits.hpp"
#include "session/report/context.hpp"

namespace eng {
namespace {

// The lengths of sequences that are scored.
struct Sequences {
  explicit Sequences(const eng_score_request& request) : r(request) {}
  uint64_t begin(size_t k) const { return k ? r.ends[k - 1] : 0; }
  uint64_t size(size_t k) const { return r.ends[k] - begin(k); }
  uint64_t first(size_t k) const { return r.first ? r.first[k] : 1; }
  void check(int64_t vocabulary, int64_t longest) const;
  const eng_score_request& r;
};

void Sequences::check(int64_t vocabulary, int64_t longest) const {
  const auto refuse = [](const std::string& text, const char* help = "") { throw Error(Exit::usage, text, help); };
  if (!r.ids || !r.ends || !r.logprobs) refuse("ids, ends or logprobs is NULL");
  for (size_t k = 0; k < r.n; ++k) {
    if (r.ends[k] < begin(k))
      refuse(fmt::format("ends[{}] = {} is before ends[{}] = {}", k, r.ends[k], k - 1, begin(k)));
    if (!size(k)) refuse(fmt::format("sequence {} is empty", k));
    if (size(k) > static_cast<uint64_t>(longest) + 1)
      refuse(fmt::format("sequence {} has {} tokens, the longest that can be scored {}", k, size(k), longest + 1),
             "plan a longer forward (lengths=[...]), or score the sequence in parts");
    if (!first(k) || first(k) > size(k))
      refuse(fmt::format("the first token that is scored of sequence {} is {}: 1 to {}", k, first(k), size(k)),
             "the first token of a sequence has no context");
    for (uint64_t i = begin(k); i < r.ends[k]; ++i)
      if (r.ids[i] < 0 || r.ids[i] >= vocabulary)
        refuse(
            fmt::format("token {} of sequence {} is {}, the model has {} ids", i - begin(k), k, r.ids[i], vocabulary));
  }
}

struct Scored {
  double logprob;
  bool greedy;
};

Scored score_of(const float* logits, size_t vocabulary, size_t id) {
  const float top = *std::max_element(logits, logits + vocabulary);
  double sum = 0;
  for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[v]) - static_cast<double>(top));
  const double out = static_cast<double>(logits[id]) - static_cast<double>(top) - std::log(sum);
  return {out, logits[id] == top && std::find(logits, logits + id, top) == logits + id};
}

}  // namespace

void Embedded::start_forward() {
  Opening& opening = *opening_;
  opening.join();
  Config& config = opening.opened.config;
  if (const std::filesystem::path& target = request_.open.target; !request_.open.text && RunDir::is_run(target)) {
    const auto found = std::filesystem::absolute(find_weights(target)).lexically_normal();
    config.section("model").set("from", found.string(), target.string());
  }
  opening.plan(request_.readable);
  Setup& setup = opening.setup;
  setup.stored = setup.plan.tensors.size();
  const uint64_t there = setup.kernels->info().total_bytes, needed = planned_peak(setup);
  if (there && needed > there)
    throw Error(setup.kernels->host_memory() ? Exit::host_memory : Exit::device_memory,
                fmt::format("the weights and their forwards need {}, device {} has {}",
                            format_bytes(static_cast<double>(needed)), setup.kernels->device(),
                            format_bytes(static_cast<double>(there))),
                "lower train.micro_batch, or give shorter lengths");
  opening.open_data();
  opening.start();
}

void Embedded::logits(std::span<const eng_tensor_in> fields) {
  const Shape* shape = nullptr;
  try {
    need_started();
    // The tokens say which forward: batch_of then checks them.
    for (const eng_tensor_in& field : fields) {
      const DLTensor* t = field.versioned ? &field.versioned->dl_tensor
                          : field.legacy  ? &field.legacy->dl_tensor
                                          : field.borrowed;
      if (!field.name || std::string_view(field.name) != ENG_FIELD_TOKENS || !t || t->ndim != 2 || !t->shape) continue;
      for (const Shape& one : opening_->setup.shapes)
        if (one.length == t->shape[1]) shape = &one;
    }
    if (!shape && !request_.readable.logits)
      throw Unsupported("this session has no logits of this length",
                        "open it with ENG_SESSION_LOGITS (logits=True), or with the length (lengths=[...])");
  } catch (...) {
    refuse_all(fields);
    throw;
  }
  const int64_t length = shape ? shape->length : opening_->setup.model.sequence_length;
  const Batch one = batch(fields, {opening_->trainer->cut().rows, length, false});
  const Turn turn(Turn::For::program);
  sound([&] {
    publish();
    opening_->trainer->logits(one, shape);
  });
}

void Embedded::score(const eng_score_request& r) {
  need_started();
  const std::vector<Shape>& shapes = opening_->setup.shapes;
  if (shapes.empty())
    throw Unsupported("this session has no forwards to score with",
                      "open it with the lengths of sequences (eng_session_request.lengths, lengths=[...])");
  const Sequences all(r);
  const auto rows = static_cast<size_t>(opening_->trainer->cut().rows);
  const auto vocabulary = static_cast<size_t>(opening_->setup.model.info.vocabulary);
  if (!r.n) return;
  all.check(static_cast<int64_t>(vocabulary), shapes.back().length);
  std::fill_n(r.logprobs, r.ends[r.n - 1], 0.0f);
  if (r.greedy) std::fill_n(r.greedy, r.ends[r.n - 1], uint8_t{0});
  // Each runs in the shortest forward that takes it, whatever it runs with, so that its numbers are always the same.
  const auto shape_of = [&](size_t k) {
    const auto wanted = static_cast<int64_t>(all.size(k) - 1);
    return std::find_if(shapes.begin(), shapes.end(), [&](const Shape& s) { return s.length >= wanted; });
  };
  std::vector<size_t> order(r.n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all.size(a) > all.size(b); });
  const Turn turn(Turn::For::program);
  sound([&] { publish(); });
  const auto& fields = opening_->data->fields();
  std::vector<float> copy;
  for (size_t at = 0, n = 0; at < order.size() && all.size(order[at]) > 1; at += n) {
    const Shape& shape = *shape_of(order[at]);
    const auto length = static_cast<size_t>(shape.length);
    for (n = 1; n < rows && at + n < order.size() && &*shape_of(order[at + n]) == &shape;) ++n;
    Batch batch;
    batch.tokens.assign(rows * length, 0);
    for (size_t k = 0; k < n; ++k)
      std::copy_n(r.ids + all.begin(order[at + k]), all.size(order[at + k]) - 1,
                  batch.tokens.begin() + static_cast<std::ptrdiff_t>(k * length));
    for (size_t f = 2; f < fields.size(); ++f) {
      const Neutral fill = neutral(fields[f].name);
      if (!fill) throw Error(Exit::usage, fmt::format("the model reads `{}`: it cannot score", fields[f].name));
      std::vector<char>& values = batch.others.emplace_back(rows * length * sizeof(int32_t));
      for (size_t k = 0; k < rows; ++k) fill(shape.length, nullptr, values.data() + k * length * sizeof(int32_t));
    }
    sound([&] { opening_->trainer->logits(batch, &shape); });
    const auto* logits = reinterpret_cast<const float*>(opening_->trainer->executor().address(shape.logits));
    const auto width = static_cast<size_t>(shape.logits.desc.dims[2]);
    for (size_t k = 0; k < n; ++k) {
      const size_t sequence = order[at + k];
      const uint64_t begin = all.begin(sequence);
      for (uint64_t i = all.first(sequence); i < all.size(sequence); ++i) {
        const float* row = logits + (k * length + i - 1) * width;
        if (!opening_->setup.kernels->host_memory()) {
          copy.resize(width);
          opening_->trainer->download(copy.data(), row, width * sizeof(float));
          row = copy.data();
        }
        const Scored scored = score_of(row, vocabulary, static_cast<size_t>(r.ids[begin + i]));
        if (!std::isfinite(scored.logprob) && !(scored.logprob < 0))
          throw Error(Exit::numerics,
                      fmt::format("the logits of sequence {} at token {} are not finite", sequence, i - 1),
                      "the weights contain values that are not finite, or too large for the number format");
        r.logprobs[begin + i] = static_cast<float>(scored.logprob);
        if (r.greedy) r.greedy[begin + i] = scored.greedy;
      }
    }
  }
}

void Embedded::set_rate(double rate) {
  need_started();
  if (!run_) throw Unsupported("nothing is trained in this session: it has no learning rate");
  if (!std::isnan(rate) && !(rate >= 0 && std::isfinite(static_cast<float>(rate))))
    throw Error(Exit::usage, fmt::format("the learning rate {} is no finite number from 0 on", rate));
  if (!run_->more()) throw Error(Exit::usage, "no step is left for another learning rate");
  const Turn turn(Turn::For::program);
  sound([&] { opening_->trainer->set_rate(std::isnan(rate) ? std::nullopt : std::optional(rate)); });
}

}  // namespace eng

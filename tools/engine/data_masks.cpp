// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/data_masks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/text.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

constexpr uint64_t counted_samples = 1000, shown_samples = 3;
constexpr std::size_t shown_bytes = 4000;

template <class T>
const T* values_of(const Batch& batch, const Data& data, const char* field) {
  for (std::size_t f = 2; f < data.fields().size(); ++f)
    if (data.fields()[f].name == field) return reinterpret_cast<const T*>(batch.others[f - 2].data());
  return nullptr;
}

// True if tokens have weights; those of pairs are no factors of their tokens.
bool weighs(const Data& data) {
  const auto& fields = data.fields();
  return data.weighted() && std::any_of(fields.begin(), fields.end(),
                                        [](const Field& field) { return field.name == ENG_FIELD_LOSS_WEIGHTS; });
}

// A sample: its positions up to the last label, the end of a document after which the next begins.
struct Sample {
  const int32_t* tokens;
  const int32_t* labels;
  const int32_t* segments;  // nullptr: one document
  const float* weights;     // of the labels; nullptr: 1
  std::size_t end = 0;      // behind the last label

  Sample(const Batch& batch, const Data& data)
      : tokens(batch.tokens.data()),
        labels(batch.labels.data()),
        segments(values_of<int32_t>(batch, data, ENG_FIELD_SEGMENTS)),
        weights(weighs(data) ? values_of<float>(batch, data, ENG_FIELD_LOSS_WEIGHTS) : nullptr) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(data.length()); ++t)
      if (labels[t] != ENG_IGNORE_LABEL) end = t + 1;
  }
  float weight(std::size_t t) const { return weights ? weights[t] : 1; }
  bool trains(std::size_t t) const { return labels[t] != ENG_IGNORE_LABEL; }
  // True if the token after position t is of another document.
  bool last(std::size_t t) const { return segments && t + 1 < end && segments[t + 1] != segments[t]; }
};

class MaskedLine {
 public:
  explicit MaskedLine(bool terminal) : terminal_(terminal) {}
  void add(const std::string& bytes, bool trains, float weight = 1) {
    if (size_ > shown_bytes) return;
    if (trains != trains_ || (trains && weight != weight_)) flush();
    trains_ = trains, weight_ = weight;
    run_ += bytes, size_ += bytes.size();
  }
  void flush() {
    if (run_.empty()) return;
    std::string text;
    for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
      end = run_.find('\n', at);
      text += (at > 0 ? "\n" : "") + printable(run_.substr(at, end - at), run_.size());
    }
    if (trains_ && weight_ != 1) text += fmt::format("|{:g}", weight_);
    write_out(!trains_ ? text : terminal_ ? "\x1b[32m" + text + "\x1b[0m" : "{+" + text + "+}");
    run_.clear();
  }
  void finish() {
    flush();
    write_out(size_ > shown_bytes ? " ...\n" : "\n");
  }

 private:
  const bool terminal_;
  std::string run_;
  std::size_t size_ = 0;
  bool trains_ = false;
  float weight_ = 1;
};

void print_masked(const Sample& sample, const Tokenizer* tokenizer) {
  MaskedLine line(isatty(STDOUT_FILENO) != 0);
  const auto text = [&](int32_t id) { return tokenizer ? tokenizer->decode(id) : fmt::format(" {}", id); };
  for (std::size_t t = 0; t <= sample.end; ++t) {
    const bool begins = t == 0 || sample.last(t - 1);
    if (begins && t > 0) line.add("\n----\n", false);
    const bool behind = t > 0 && !begins;  // the token is the label of the position before it
    const int32_t id = t < sample.end ? sample.tokens[t] : sample.labels[t - 1];
    const bool trains = behind && sample.trains(t - 1);
    line.add(text(id), trains, trains ? sample.weight(t - 1) : 1);
  }
  line.finish();
}

}  // namespace

bool print_masks(const Data& data, const Tokenizer* tokenizer) {
  const uint64_t samples = std::min(counted_samples, data.info().train_samples);
  uint64_t labels = 0, none = 0;
  double weights = 0;
  float least = INFINITY, most = 0;
  Batch batch;
  for (uint64_t k = 0; k < samples; ++k) {
    batch.clear();
    data.read(ENG_SPLIT_TRAIN, k, 1, batch);
    const Sample sample(batch, data);
    for (std::size_t t = 0; t < sample.end; ++t) {
      (sample.trains(t) ? labels : none) += sample.last(t) ? 0 : 1;
      if (!sample.trains(t)) continue;
      weights += double{sample.weight(t)};
      least = std::min(least, sample.weight(t)), most = std::max(most, sample.weight(t));
    }
  }
  if (none == 0 && !weighs(data)) return false;
  print_out("trained: {} of {} tokens ({:.1f} %), in {} samples\n", labels, labels + none,
            100 * static_cast<double>(labels) / static_cast<double>(labels + none), samples);
  if (weighs(data) && labels)
    print_out("weights: {:g} to {:g}, {:.6g} in all, {:.4g} for each of these tokens\n", least, most, weights,
              weights / static_cast<double>(labels));
  for (uint64_t k = 0; k < std::min(shown_samples, samples); ++k) {
    batch.clear();
    data.read(ENG_SPLIT_TRAIN, k, 1, batch);
    print_out("sample {}, trained tokens {}{}:\n", k, isatty(STDOUT_FILENO) ? "in green" : "in {+ +}",
              weighs(data) ? ", behind | a weight other than 1" : "");
    print_masked(Sample(batch, data), tokenizer);
  }
  return true;
}

}  // namespace eng

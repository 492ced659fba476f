// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/data_masks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/text.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

constexpr uint64_t counted_samples = 1000, shown_samples = 3;
constexpr std::size_t shown_bytes = 4000;

// A sample: its positions up to the last label, the end of a document after which the next begins.
struct Sample {
  const int32_t* tokens;
  const int32_t* labels;
  const int32_t* segments;  // nullptr: one document
  std::size_t end = 0;      // behind the last label

  Sample(const Batch& batch, int64_t length, std::size_t field)
      : tokens(batch.tokens.data()),
        labels(batch.labels.data()),
        segments(field < batch.others.size() ? reinterpret_cast<const int32_t*>(batch.others[field].data()) : nullptr) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t)
      if (labels[t] != ENG_IGNORE_LABEL) end = t + 1;
  }
  bool trains(std::size_t t) const { return labels[t] != ENG_IGNORE_LABEL; }
  // True if the token after position t is of another document.
  bool last(std::size_t t) const { return segments && t + 1 < end && segments[t + 1] != segments[t]; }
};

class MaskedLine {
 public:
  explicit MaskedLine(bool terminal) : terminal_(terminal) {}
  void add(const std::string& bytes, bool trains) {
    if (size_ > shown_bytes) return;
    if (trains != trains_) flush();
    trains_ = trains;
    run_ += bytes, size_ += bytes.size();
  }
  void flush() {
    if (run_.empty()) return;
    std::string text;
    for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
      end = run_.find('\n', at);
      text += (at > 0 ? "\n" : "") + printable(run_.substr(at, end - at), run_.size());
    }
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
};

void print_masked(const Sample& sample, const Tokenizer* tokenizer) {
  MaskedLine line(isatty(STDOUT_FILENO) != 0);
  const auto text = [&](int32_t id) { return tokenizer ? tokenizer->decode(id) : fmt::format(" {}", id); };
  for (std::size_t t = 0; t <= sample.end; ++t) {
    const bool begins = t == 0 || sample.last(t - 1);
    if (begins && t > 0) line.add("\n----\n", false);
    const bool behind = t > 0 && !begins;  // the token is the label of the position before it
    const int32_t id = t < sample.end ? sample.tokens[t] : sample.labels[t - 1];
    line.add(text(id), behind && sample.trains(t - 1));
  }
  line.finish();
}

}  // namespace

bool print_masks(const Data& data, const Tokenizer* tokenizer) {
  const uint64_t samples = std::min(counted_samples, data.info().train_samples);
  std::size_t field = 0;
  while (field + 2 < data.fields().size() && data.fields()[field + 2].name != ENG_FIELD_SEGMENTS) ++field;
  uint64_t labels = 0, none = 0;
  Batch batch;
  for (uint64_t k = 0; k < samples; ++k) {
    batch.clear();
    data.read(ENG_SPLIT_TRAIN, k, 1, batch);
    const Sample sample(batch, data.length(), field);
    for (std::size_t t = 0; t < sample.end; ++t) (sample.trains(t) ? labels : none) += sample.last(t) ? 0 : 1;
  }
  if (none == 0) return false;
  print_out("trained: {} of {} tokens ({:.1f} %), in {} samples\n", labels, labels + none,
            100 * static_cast<double>(labels) / static_cast<double>(labels + none), samples);
  for (uint64_t k = 0; k < std::min(shown_samples, samples); ++k) {
    batch.clear();
    data.read(ENG_SPLIT_TRAIN, k, 1, batch);
    print_out("sample {}, trained tokens {}:\n", k, isatty(STDOUT_FILENO) ? "in green" : "in {+ +}");
    print_masked(Sample(batch, data.length(), field), tokenizer);
  }
  return true;
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "session/job/passes.hpp"

#include <cmath>
#include <cstring>

#include "core/base/text.hpp"
#include "core/plan/request.hpp"
#include "engine/ops.h"
#include "session/ranks/exchange.hpp"

namespace eng {
namespace {

// Bytes that a rank sends at a time.
constexpr uint64_t piece_bytes = uint64_t{1} << 20;

TensorSpec spec_of(const Plan& plan, const Tensor& t) {
  return {t.name,
          t.role,
          t.desc.dtype,
          {t.desc.dims, t.desc.dims + t.desc.ndim},
          static_cast<uint32_t>(&t - plan.tensors.data())};
}

template <class Number>
void add_numbers(char* sum, const char* more, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += sizeof(Number)) {
    Number a, b;
    std::memcpy(&a, sum + at, sizeof a);
    std::memcpy(&b, more + at, sizeof b);
    a += b;
    std::memcpy(sum + at, &a, sizeof a);
  }
}

// -log of the probability of `label`. x: the logits of a position, (V).
double loss_at(const float* x, int64_t vocabulary, int32_t label) {
  const double most = *std::max_element(x, x + vocabulary);
  double sum = 0;
  for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(x[v] - most);
  return most + std::log(sum) - x[label];
}

[[noreturn]] void fault(eng_status status, const std::string& text) {
  throw JobFault{status, text};
}

}  // namespace

Passes::Passes(const Setup& setup, const Data& data, Trainer& trainer, const MadeJob& made)
    : setup_(setup), data_(data), trainer_(trainer), made_(made), peers_(trainer.peers()) {}

uint64_t Passes::windows(uint32_t split) const {
  if (split != ENG_JOB_TRAIN && split != ENG_JOB_HELD)
    fault(ENG_INVALID, fmt::format("there is no split {} of the data", split));
  return split == ENG_JOB_TRAIN ? data_.info().train_samples : data_.info().validation_samples;
}

// Appends rows to the batch. Windows after the last one of the split do not count.
void Passes::read_rows(uint32_t split, uint64_t first, int64_t rows) {
  const uint64_t all = windows(split);
  const int32_t from = split == ENG_JOB_TRAIN ? ENG_SPLIT_TRAIN : ENG_SPLIT_VALIDATION;
  for (int64_t r = 0; r < rows; ++r) {
    const uint64_t at = first + static_cast<uint64_t>(r);
    const int64_t valid = batch_.valid;
    data_.read(from, at < all ? at : 0, 1, batch_);
    if (at < all) continue;
    std::fill(batch_.labels.end() - data_.length(), batch_.labels.end(), ENG_IGNORE_LABEL);
    batch_.valid = valid;
  }
}

void Passes::publish() {
  if (changed_) trainer_.publish();
  changed_ = false;
}

double Passes::gradient(uint32_t split, uint64_t first) {
  if (made_.job.info.flags & ENG_JOB_NO_GRADIENTS)
    fault(ENG_PRECONDITION, "eng_job_info.flags has ENG_JOB_NO_GRADIENTS, so the plan has no gradients");
  const Cut& cut = trainer_.cut();
  const uint64_t all = windows(split), n = cut.step();
  if (first > all || n > all - first)
    fault(ENG_OUT_OF_RANGE, fmt::format("a gradient of {} windows from window {} on: there are {} {} windows", n, first,
                                        all, split == ENG_JOB_TRAIN ? "training" : "held-out"));
  publish();
  batch_.clear();
  const auto rows = static_cast<uint64_t>(cut.rows);
  for (uint64_t a = 0, at = first + rows * cut.rank; a < static_cast<uint64_t>(cut.accumulate);
       ++a, at += rows * cut.world)
    read_rows(split, at, cut.rows);
  return trainer_.gradients(batch_, trainer_.agree(batch_, false).divisor);
}

void Passes::losses(uint32_t split, uint64_t first, uint32_t n, bool sites, double* sums, int64_t* labels) {
  const Cut& cut = trainer_.cut();
  const auto rows = static_cast<uint64_t>(cut.rows);
  const uint64_t all = windows(split), last = n ? first + (n - 1) * rows : first;
  if (n && (last >= all || (sites && last + rows > all)))
    fault(ENG_OUT_OF_RANGE, fmt::format("{} micro-batches of {} windows from window {} on: there are {} {} windows", n,
                                        rows, first, all, split == ENG_JOB_TRAIN ? "training" : "held-out"));
  if (sites && plan().sites.empty()) sites = false;
  publish();
  struct One {
    double sum;
    int64_t labels;
  };
  std::string mine;
  for (uint64_t k = cut.rank; k - cut.rank < n; k += cut.world) {
    batch_.clear();
    // A rank without a micro-batch in the last turn computes one that does not count.
    read_rows(split, k < n ? first + k * rows : all, cut.rows);
    const One one{trainer_.loss_of(batch_, sites && k < n ? eval_with_sites : "eval"), batch_.valid};
    if (k < n) mine.append(reinterpret_cast<const char*>(&one), sizeof one);
  }
  const std::vector<std::string> texts = trainer_.single_rank() ? std::vector{mine} : peers_.exchange(mine);
  for (uint64_t k = 0; k < n; ++k) {
    One one{};
    const std::string& text = texts[k % cut.world];
    if (text.size() < (k / cut.world + 1) * sizeof one)
      throw Error(Exit::communication,
                  fmt::format("losses of a job: rank {} gave {} bytes", k % cut.world, text.size()));
    std::memcpy(&one, text.data() + k / cut.world * sizeof one, sizeof one);
    if (sums) sums[k] = one.sum;
    if (labels) labels[k] = one.labels;
  }
}

void Passes::field(uint32_t split, uint64_t window, const std::string& name, void* out) {
  const uint64_t all = windows(split);
  if (window >= all) fault(ENG_OUT_OF_RANGE, fmt::format("there is no window {}: there are {}", window, all));
  const std::vector<Field>& fields = data_.fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& one) { return one.name == name; });
  if (found == fields.end())
    fault(ENG_NOT_FOUND,
          fmt::format("model {} reads no field `{}` of the batch", setup_.model.plugin, printable(name)));
  batch_.clear();
  data_.read(split == ENG_JOB_TRAIN ? ENG_SPLIT_TRAIN : ENG_SPLIT_VALIDATION, window, 1, batch_);
  const auto f = static_cast<size_t>(found - fields.begin());
  const void* from =
      f > 1 ? static_cast<const void*>(batch_.others[f - 2].data()) : (f ? batch_.labels.data() : batch_.tokens.data());
  std::memcpy(out, from, static_cast<size_t>(data_.length()) * sizeof(int32_t));
}

// The losses of the batch, whose logits are there: (rows, T) f64, as bytes.
std::string Passes::losses_by_position() {
  const Tensor& logits = *plan().find("logits", "activation");
  const int64_t vocabulary = logits.desc.dims[logits.desc.ndim - 1];
  const auto positions = static_cast<int64_t>(batch_.labels.size());
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(piece_bytes / sizeof(float)) / vocabulary);
  std::vector<double> losses(batch_.labels.size());
  std::vector<float> some(static_cast<size_t>(std::min(most, positions) * vocabulary));
  const Read reader = trainer_.reader();
  for (int64_t at = 0; at < positions; at += most) {
    const int64_t n = std::min(most, positions - at);
    reader(spec_of(plan(), logits), static_cast<uint64_t>(at * vocabulary), static_cast<uint64_t>(n * vocabulary),
           some.data());
    for (int64_t k = 0; k < n; ++k)
      if (const int32_t label = batch_.labels[static_cast<size_t>(at + k)]; label != ENG_IGNORE_LABEL)
        losses[static_cast<size_t>(at + k)] = loss_at(some.data() + k * vocabulary, vocabulary, label);
  }
  return {reinterpret_cast<const char*>(losses.data()), losses.size() * sizeof(double)};
}

void Passes::position_losses(uint32_t split, uint64_t first, uint32_t n, double* losses) {
  const Cut& cut = trainer_.cut();
  const uint64_t rows = static_cast<uint64_t>(cut.rows), all = windows(split), turns = (n + rows - 1) / rows;
  if (!plan().find("logits", "activation"))
    fault(ENG_PRECONDITION, "losses of positions need ENG_JOB_POSITIONS in eng_job_info.flags");
  if (first > all || n > all - first)
    fault(ENG_OUT_OF_RANGE, fmt::format("{} windows from window {} on: there are {}", n, first, all));
  publish();
  const size_t row = static_cast<size_t>(data_.length()) * sizeof(double), whole = row * rows;
  std::string mine;
  for (uint64_t k = cut.rank; k - cut.rank < turns; k += cut.world) {
    batch_.clear();
    // A rank without a micro-batch in the last turn computes one that does not count.
    read_rows(split, k < turns ? first + k * rows : all, cut.rows);
    trainer_.logits(batch_);
    if (k < turns) mine += losses_by_position();
  }
  const std::vector<std::string> texts = trainer_.single_rank() ? std::vector{mine} : peers_.exchange(mine);
  for (uint64_t k = 0; k < turns; ++k) {
    const std::string& text = texts[k % cut.world];
    if (text.size() < (k / cut.world + 1) * whole)
      throw Error(Exit::communication,
                  fmt::format("losses of a job: rank {} gave {} bytes", k % cut.world, text.size()));
    std::memcpy(losses + k * rows * row / sizeof(double), text.data() + k / cut.world * whole,
                row * std::min(rows, n - k * rows));
  }
}

void Passes::program(uint32_t k, const float* numbers, uint32_t n, int64_t counter) {
  constexpr uint32_t most = 16;
  if (k >= made_.job.info.programs)
    fault(ENG_INVALID, fmt::format("there is no program {}: the job has {}", k, made_.job.info.programs));
  if (n > most) fault(ENG_INVALID, fmt::format("program {} is given {} numbers, the limit is {}", k, n, most));
  publish();
  float scalars[ENG_S_COUNT] = {};
  scalars[ENG_S_LOSS_SCALE] = scalars[ENG_S_CLIP] = scalars[ENG_S_OK] = 1;
  std::copy(numbers, numbers + n, scalars + ENG_S_LR);
  trainer_.job_program(k, scalars, counter);
}

const Tensor& Passes::tensor(uint32_t what, uint32_t state, uint32_t index) const {
  const auto find = [&](const std::string& name, const std::string& role) -> const Tensor& {
    const Tensor* found = plan().find(name, role);
    if (!found) fault(ENG_NOT_FOUND, fmt::format("{} has no {}", name, role));
    return *found;
  };
  const auto below = [&](size_t n, const char* many) {
    if (index >= n) fault(ENG_NOT_FOUND, fmt::format("there is no number {} of {} {}", index, n, many));
  };
  const auto& params = setup_.model.params;
  switch (what) {
    case ENG_JOB_PARAMETER:
    case ENG_JOB_GRADIENT:
      below(params.size(), "parameters");
      if (params[index].frozen) fault(ENG_NOT_FOUND, params[index].name + " is frozen");
      return find(params[index].name, what == ENG_JOB_GRADIENT ? "gradient" : kParameterRole);
    case ENG_JOB_STATE:
      below(params.size(), "parameters");
      if (state >= made_.states.size())
        fault(ENG_NOT_FOUND, fmt::format("there is no state {}: the job has {}", state, made_.states.size()));
      return find(params[index].name, made_.states[state]);
    case ENG_JOB_VALUE:
      below(made_.job.values.size(), "values");
      return find(made_.job.value_name(index), "value");
    case ENG_JOB_SITE:
      below(plan().sites.size(), "sites");
      return find(fmt::format("site {}", index), "site");
    default:
      fault(ENG_INVALID, fmt::format("there are no tensors of kind {}", what));
  }
}

static void check_range(const Tensor& t, uint64_t first, uint64_t count) {
  const auto all = static_cast<uint64_t>(eng::count(t.desc));
  if (first > all || count > all - first)
    fault(ENG_OUT_OF_RANGE,
          fmt::format("elements {} to {} of the {} {}: it has {} elements", first, first + count, t.role, t.name, all));
}

void Passes::read(uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count, void* out) const {
  const Tensor& t = tensor(what, state, index);
  check_range(t, first, count);
  const uint64_t size = dtype_size(t.desc.dtype), most = piece_bytes / size;
  for (uint64_t at = 0; at < count; at += most) {
    char* const to = static_cast<char*>(out) + at * size;
    const uint64_t n = std::min(most, count - at);
    if (what == ENG_JOB_SITE)
      read_sum(t, first + at, n, to);
    else
      read_held(t, first + at, n, to);
  }
}

void Passes::read_held(const Tensor& t, uint64_t first, uint64_t count, char* out) const {
  if (t.part && !trainer_.single_rank())
    read_parts(t, first, count, out);
  else
    trainer_.reader()(spec_of(plan(), t), first, count, out);
}

std::string Passes::parameters_hash() const {
  Checksum sum;
  std::vector<char> bytes(piece_bytes);
  for (const Tensor& t : plan().tensors) {
    if (t.role != kParameterRole) continue;
    const uint64_t size = dtype_size(t.desc.dtype), all = static_cast<uint64_t>(count(t.desc)),
                   most = piece_bytes / size;
    for (uint64_t at = 0; at < all; at += most) {
      const uint64_t n = std::min(most, all - at);
      read_held(t, at, n, bytes.data());
      sum.add(bytes.data(), n * size);
    }
  }
  return sum.hex();
}

// Each rank sends the elements that it has, each range after its place.
void Passes::read_parts(const Tensor& t, uint64_t first, uint64_t count, char* out) const {
  const uint64_t size = dtype_size(t.desc.dtype);
  std::string mine;
  for (const HeldRange& held : t.ranges) {
    const uint64_t begin = std::max(first, held.first), end = std::min(first + count, held.first + held.count);
    if (begin >= end) continue;
    const uint64_t place[2] = {begin, end - begin};
    mine.append(reinterpret_cast<const char*>(place), sizeof place);
    mine.resize(mine.size() + place[1] * size);
    trainer_.reader()(spec_of(plan(), t), begin, place[1], mine.data() + mine.size() - place[1] * size);
  }
  for (const std::string& text : peers_.exchange(mine))
    for (size_t at = 0; at < text.size();) {
      uint64_t place[2] = {};
      if (text.size() - at >= sizeof place) std::memcpy(place, text.data() + at, sizeof place);
      at += sizeof place;
      if (at > text.size() || place[0] < first || place[1] > count || place[0] - first > count - place[1] ||
          place[1] * size > text.size() - at)
        throw Error(Exit::communication, fmt::format("reading the {} {}: a rank gave other bytes", t.role, t.name));
      std::memcpy(out + (place[0] - first) * size, text.data() + at, place[1] * size);
      at += place[1] * size;
    }
}

// The sum over the ranks, in their order.
void Passes::read_sum(const Tensor& t, uint64_t first, uint64_t count, char* out) const {
  const uint64_t bytes = count * dtype_size(t.desc.dtype);
  trainer_.reader()(spec_of(plan(), t), first, count, out);
  if (trainer_.single_rank()) return;
  const std::vector<std::string> all = peers_.exchange(std::string(out, bytes));
  std::memset(out, 0, bytes);
  for (const std::string& one : all) {
    if (one.size() != bytes)
      throw Error(Exit::communication,
                  fmt::format("reading {}: a rank gave {} bytes, not {}", t.name, one.size(), bytes));
    if (t.desc.dtype == ENG_I64)
      add_numbers<int64_t>(out, one.data(), bytes);
    else if (t.desc.dtype == ENG_F64)
      add_numbers<double>(out, one.data(), bytes);
    else
      add_numbers<float>(out, one.data(), bytes);
  }
}

void Passes::write(uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count, const void* data) {
  const Tensor& t = tensor(what, state, index);
  if (what == ENG_JOB_GRADIENT) fault(ENG_INVALID, "a gradient may not be written");
  check_range(t, first, count);
  if (!count) return;
  // The sum over ranks is what was written.
  const std::vector<char> zeros(what == ENG_JOB_SITE && trainer_.cut().rank ? count * dtype_size(t.desc.dtype) : 0);
  trainer_.fill()(spec_of(plan(), t), first, count, zeros.empty() ? data : zeros.data());
  if (what == ENG_JOB_PARAMETER) changed_ = true;
}

}  // namespace eng

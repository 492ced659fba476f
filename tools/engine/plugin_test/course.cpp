// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/course.hpp"

#include <algorithm>
#include <cmath>

#include "core/program/program.hpp"
#include "engine/ops.h"

namespace eng::plugin_test {
namespace {

uint64_t mixed(uint64_t seed, uint64_t a, uint64_t b) {
  return seed * 0x9E3779B97F4A7C15ull + a * 0xBF58476D1CE4E5B9ull + b * 0x94D049BB133111EBull + 1;
}

std::string key_of(const Tensor& t) {
  return t.role == "parameter" ? t.name : t.name + "." + t.role;
}

// The loss of some micro-batches of sequences of `length` labels, times their labels: the weighted sum of their terms.
// A row may hold more than those.
double loss_of(const Plan& plan, const Array& values, int64_t micro_batches, int64_t length) {
  double sum = 0;
  for (int64_t k = 0; k < micro_batches; ++k) {
    if (plan.terms.empty()) sum += values.at(k * plan.row);
    for (size_t t = 0; t < plan.terms.size(); ++t)
      sum += plan.terms[t].weight * values.at(k * plan.row + static_cast<int64_t>(t)) *
             (plan.terms[t].per ? static_cast<double>(length * plan.terms[t].per) : 1.0);
  }
  return sum;
}

const Offered documents_offered = {"plugins test", {{"segments"}, {"positions"}}};

}  // namespace

Training::Training(const Course& course, Machine& machine)
    : course_(course), plans_(make_plans(machine)), team_(plans_, machine) {}

std::vector<Plan> Training::make_plans(Machine& machine) {
  std::vector<Plan> out;
  for (uint32_t r = 0; r < course_.ranks; ++r) {
    const World world{r, course_.ranks, r, course_.ranks};
    precisions_.push_back(
        make_precision(course_.precision.name, course_.precision.table, course_.precision.options, world));
    const int32_t dtype = course_.dtype ? course_.dtype : precisions_.back().dtype(ENG_ROLE_ACT);
    std::vector<Transform> transforms;
    for (const auto& one : course_.transforms) transforms.push_back(make_transform(one.name, one.table, one.options));
    Loss loss;
    if (const auto& one = course_.loss) loss = make_loss(one->name, one->table, one->options);
    loss.sequences = course_.rows * course_.accumulate * course_.ranks;
    models_.push_back(trace_model(course_.model.name, course_.model.table, course_.model.options, course_.rows,
                                  course_.length, dtype, true, course_.packed ? documents_offered : Offered{},
                                  transforms, loss));
    PlanRequest request{models_.back(), precisions_.back(), nullptr, machine.name(), {}};
    request.ranks = Ranks(world);
    if (course_.ranks > 1) {
      shardings_.push_back(make_sharding(course_.zero.name, course_.zero.table, course_.zero.options, request.ranks));
      request.sharding = &shardings_.back();
    }
    if (course_.optimizer) {
      optimizers_.push_back(make_optimizer(course_.optimizer->name, course_.optimizer->table,
                                           course_.optimizer->options, {course_.steps, 0.01}));
      request.optimizer = &optimizers_.back();
    }
    request.workspace = [&](const Call& call) { return call.op->collective ? 0 : machine.kernels().workspace(call); };
    for (const auto& observer : course_.observers)
      request.observers.push_back(make_observer(observer.name, observer.table, observer.options));
    request.accumulate = course_.accumulate;
    request.steps = course_.steps, request.seed = static_cast<int64_t>(course_.seed);
    request.grad_clip = 1;
    request.bucket = course_.bucket, request.overlap = course_.overlap, request.prefetch = course_.prefetch;
    request.reduce_per_step = course_.per_step;
    request.logits = course_.logits, request.generate = course_.generate;
    out.push_back(make_plan(request));
  }
  return out;
}

void Training::init() {
  team_.run("init");
  counters(0, 0);
  if (!course_.optimizer) return;
  for (size_t r = 0; r < team_.size(); ++r) {
    const View& table = plans_[r].table;
    auto* rows = reinterpret_cast<float*>(team_.address(r, table));
    for (int64_t k = 1; k <= course_.steps; ++k) {
      const std::vector<float> more = optimizers_[r].scalars(static_cast<uint64_t>(k));
      if (static_cast<int64_t>(more.size()) + 1 != table.desc.dims[1])
        throw Broken(fmt::format("scalars gives {} numbers for update 1 and {} for update {}", table.desc.dims[1] - 1,
                                 more.size(), k));
      *rows++ = 0.01f;
      for (float x : more) *rows++ = x;
    }
  }
}

void Training::counters(int64_t step, int64_t updates) {
  for (size_t r = 0; r < team_.size(); ++r) {
    auto* c = reinterpret_cast<int64_t*>(team_.address(r, plans_[r].counters));
    std::fill_n(c, ENG_C_COUNT, 0);
    c[ENG_C_STEP] = step, c[ENG_C_UPDATES] = updates;
    if (team_.size() > 1) c[ENG_C_RANK] = static_cast<int64_t>(r), c[ENG_C_WORLD] = static_cast<int64_t>(team_.size());
  }
}

void Training::stage(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels, size_t rank) {
  std::copy(tokens.begin(), tokens.end(),
            reinterpret_cast<int32_t*>(team_.address(rank, plans_[rank].field("tokens"))));
  std::copy(labels.begin(), labels.end(),
            reinterpret_cast<int32_t*>(team_.address(rank, plans_[rank].field("labels"))));
}

void Training::stage_documents(Random& random, size_t rank) {
  const Documents made = documents(random, course_.accumulate * course_.rows, course_.length);
  for (const Field& field : models_[rank].fields) {
    const Array* from = field.name == "segments"    ? &made.segments
                        : field.name == "positions" ? &made.positions
                                                    : nullptr;
    if (from) std::memcpy(team_.address(rank, plans_[rank].field(field.name)), from->bytes.data(), from->bytes.size());
  }
}

std::vector<float> Training::step() {
  for (size_t r = 0; r < team_.size(); ++r) {
    Random random(mixed(course_.seed, static_cast<uint64_t>(step_) + 1, r + 1));
    std::vector<int32_t> tokens(static_cast<size_t>(count(plans_[r].field("tokens").desc))), labels(tokens.size());
    for (int32_t& x : tokens) x = static_cast<int32_t>(pick(random, 0, vocabulary() - 1));
    for (int32_t& x : labels) x = static_cast<int32_t>(pick(random, 0, vocabulary() - 1));
    stage(tokens, labels, r);
    if (course_.packed) stage_documents(random, r);
    const auto all = static_cast<float>(tokens.size() * team_.size());
    reinterpret_cast<float*>(team_.address(r, plans_[r].inputs))[0] = 1 / all;
  }
  team_.run("train");
  ++step_;
  const View& losses = team_.size() > 1 ? plans_[0].all_losses : plans_[0].losses;
  const Array values = read(losses);
  std::vector<float> out;
  const auto terms = static_cast<int64_t>(std::max<size_t>(plans_[0].terms.size(), 1));
  const int64_t row = plans_[0].row, all_values = course_.accumulate * row + plans_[0].once;
  observed_.clear();
  for (int64_t k = 0; k < values.size(); ++k) {
    const bool loss = k % all_values < course_.accumulate * row && k % all_values % row < terms;
    (loss ? out : observed_).push_back(static_cast<float>(values.at(k)));
  }
  if (course_.optimizer) out.push_back(static_cast<float>(read(plans_[0].results).at(ENG_S_NORM)));
  return out;
}

void Training::tokens(std::vector<int32_t> ids) {
  std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(ids.front());
  stage(ids, labels, 0);
}

double Training::loss() {
  team_.run("eval");
  return loss_of(plans_[0], read(plans_[0].losses), 1, course_.length);
}

double Training::again() {
  counters(step_ - 1, 0);
  team_.run("train");
  return loss_of(plans_[0], read(plans_[0].losses), plans_[0].accumulate, course_.length);
}

Array Training::read(const View& view) {
  Array out(view.desc);
  std::memcpy(out.bytes.data(), team_.address(0, view), out.bytes.size());
  return out;
}

Tensors Training::tensors() {
  if (plans_[0].publishes_late) team_.run("publish");
  Tensors out;
  for (size_t r = 0; r < team_.size(); ++r)
    for (const Tensor& t : plans_[r].tensors) {
      const std::string key = key_of(t);
      if (!out.count(key)) out[key] = Array(t.desc, 0xFF);
      Array& whole = out[key];
      const uint64_t size = dtype_size(t.desc.dtype);
      for (const HeldRange& e : t.ranges) {
        uint8_t *to = whole.bytes.data() + e.first * size, *from = team_.address(r, e.view);
        const uint64_t n = e.count * size;
        const bool fresh = std::all_of(to, to + n, [](uint8_t b) { return b == 0xFF; });
        if (!fresh && std::memcmp(to, from, n) != 0)
          throw Broken(
              fmt::format("{}: rank {} of {} holds other bits than the ranks before it", key, r, team_.size()));
        std::memcpy(to, from, n);
      }
    }
  return out;
}

void Training::load(const Tensors& tensors, int64_t step, int64_t updates) {
  for (size_t r = 0; r < team_.size(); ++r)
    for (const Tensor& t : plans_[r].tensors)
      if (const auto found = tensors.find(key_of(t)); found != tensors.end())
        for (const HeldRange& e : t.ranges)
          std::memcpy(team_.address(r, e.view), found->second.bytes.data() + e.first * dtype_size(t.desc.dtype),
                      bytes(e.view.desc));
  step_ = step;
  counters(step, updates);
  team_.run("publish");
}

void Training::put(const std::string& name, const std::string& role, int64_t element, double value) {
  for (size_t r = 0; r < team_.size(); ++r)
    for (const Tensor& t : plans_[r].tensors)
      for (const HeldRange& e : t.ranges) {
        const auto at = static_cast<uint64_t>(element);
        if (t.name != name || t.role != role || at < e.first || at >= e.first + e.count) continue;
        Array one(make_desc(t.desc.dtype, {1}));
        one.put(0, value);
        const uint64_t size = dtype_size(t.desc.dtype);
        std::memcpy(team_.address(r, e.view) + (at - e.first) * size, one.bytes.data(), size);
      }
}

Results results_of(const Course& course, Machine& machine) {
  Training run(course, machine);
  run.init();
  Results out;
  for (int64_t k = 0; k < course.steps; ++k) out.numbers.push_back(run.step());
  out.tensors = run.tensors();
  return out;
}

double loss_distance(const Results& plain, const Results& theirs, const std::string& how) {
  double worst = 0;
  for (size_t k = 0; k < plain.numbers.size(); ++k)
    for (size_t j = 0; j + 1 < plain.numbers[k].size(); ++j) {  // the last one is the norm
      const double a = theirs.numbers[k][j], b = plain.numbers[k][j], off = std::fabs(a - b) / std::fabs(b);
      if (!(off < 0.1)) throw Broken(fmt::format("the loss of step {} is {:.6g}, plain {:.6g}; {}", k + 1, a, b, how));
      worst = std::max(worst, off);
    }
  return worst;
}

std::string first_difference(const Results& a, const Results& b, const std::string& only) {
  for (size_t k = 0; k < std::min(a.numbers.size(), b.numbers.size()); ++k)
    for (size_t j = 0; j < std::min(a.numbers[k].size(), b.numbers[k].size()); ++j)
      if (std::memcmp(&a.numbers[k][j], &b.numbers[k][j], sizeof(float)) != 0)
        return fmt::format("number {} of step {} is {:.9g} and {:.9g}", j, k + 1, a.numbers[k][j], b.numbers[k][j]);
  for (const auto& [name, values] : a.tensors) {
    if (!only.empty() && name.find(only) == std::string::npos) continue;
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end()) continue;
    if (!same(values.desc, found->second.desc))
      return fmt::format("{} is {} and {}", name, describe(values.desc), describe(found->second.desc));
    if (const std::string what = first_difference(values, found->second); !what.empty()) return name + ": " + what;
  }
  return "";
}

}  // namespace eng::plugin_test

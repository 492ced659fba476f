// SPDX-License-Identifier: Apache-2.0
#include "core/train/trainer.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>

#include "core/base/error.hpp"
#include "core/checkpoint/list.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

uint64_t arena_bytes(const Plan& plan) {
  uint64_t total = 0;
  for (const Arena& arena : plan.arenas) total += arena.total();
  return total;
}

}  // namespace

Trainer::Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data)
    : config_(config),
      registry_(registry),
      setup_(setup),
      data_(data),
      schedule_(make_schedule(config)),
      device_(registry, setup.kernels->device(), config.section("device")),
      executor_(setup.plan, device_, *setup.kernels) {
  const Section& train = config.section("train");
  steps_ = train.integer("steps");
  batch_ = train.integer("micro_batch");
  length_ = train.integer("sequence_length");
  accumulate_ = train.integer("accumulate");
  losses_.resize(static_cast<size_t>(accumulate_));
  // The numbers of every update, by its index: the step itself needs no host.
  // A few at a time: a long run's table has no second copy.
  std::vector<float> rows;
  uint64_t uploaded = 0;
  for (int64_t k = 1; k <= steps_; ++k) {
    rows.push_back(static_cast<float>(schedule_.at(k)));
    for (float x : setup.optimizer.scalars(static_cast<uint64_t>(k))) rows.push_back(x);
    if (k % 1024 && k != steps_) continue;
    executor_.upload(setup.plan.table, uploaded, rows.data(), rows.size() * sizeof(float));
    uploaded += rows.size() * sizeof(float);
    rows.clear();
  }
}

void Trainer::upload_counters(int64_t step, int64_t updates) {
  int64_t counters[ENG_C_COUNT] = {};
  counters[ENG_C_STEP] = step;
  counters[ENG_C_UPDATES] = updates;
  executor_.upload(setup_.plan.counters, counters);
}

void Trainer::initialise() {
  executor_.run("init");
  step_ = 0;
  upload_counters(0, 0);
}

// Between programs the transient part of the arena is free: saving and loading need no memory of their own.
Staging Trainer::staging() {
  const Arena& arena = setup_.plan.arenas[0];
  uint64_t n = arena.transient + arena.workspace;
  if (setup_.kernels->info().dl_device_type != kDLCPU || n < (uint64_t{1} << 20)) return {};
  return {executor_.transient(), n};
}

std::vector<TensorRef> Trainer::tensors() const {
  std::vector<TensorRef> out;
  for (const Tensor& t : setup_.plan.tensors) {
    if (t.role == "gradient") continue;
    TensorRef ref{t.name, t.role, t.view.desc.dtype, {t.view.desc.dims, t.view.desc.dims + t.view.desc.ndim},
                  {},     nullptr};
    if (setup_.kernels->info().dl_device_type == kDLCPU) {
      ref.host = executor_.address(t.view);
    } else {
      uint64_t size = dtype_size(t.view.desc.dtype);
      ref.read = [this, view = t.view, size](void* host, uint64_t first, uint64_t n) {
        const_cast<Executor&>(executor_).download(host, view, first * size, n * size);
      };
    }
    out.push_back(std::move(ref));
  }
  return out;
}

void Trainer::load(const std::filesystem::path& checkpoint) {
  std::vector<TensorSpec> expected;
  std::map<std::pair<std::string, std::string>, const View*> views;
  for (const Tensor& t : setup_.plan.tensors) {
    if (t.role == "gradient") continue;
    expected.push_back({t.name, t.role, t.view.desc.dtype, {t.view.desc.dims, t.view.desc.dims + t.view.desc.ndim}});
    views[{t.name, t.role}] = &t.view;
  }
  RunPoint point = load_checkpoint(
      checkpoint, expected,
      [&](const TensorSpec& spec, uint64_t first, uint64_t n, const void* data) {
        uint64_t size = dtype_size(spec.dtype);
        executor_.upload(*views.at({spec.name, spec.role}), first * size, data, n * size);
      },
      staging());
  if (point.data_hash != data_.info().content_hash)
    throw Error(Exit::data,
                fmt::format("{} was written with other data (hash {}, now {})", checkpoint.string(), point.data_hash,
                            data_.info().content_hash),
                "point [data] paths at the same files, or start a new run");
  step_ = point.step;
  last_checkpoint_ = checkpoint.filename();
  upload_counters(point.step, point.updates);
  executor_.run("publish");
}

Trainer::Result Trainer::train_step(Loader& loader, bool (*stop)()) {
  Result result;
  auto start = Clock::now();
  const Batch& batch = loader.next();
  result.data_wait = since(start);
  executor_.upload(setup_.plan.tokens, batch.tokens.data());
  executor_.upload(setup_.plan.labels_in, batch.labels.data());
  float inputs[8] = {batch.valid ? 1.0f / static_cast<float>(batch.valid) : 0.0f};
  executor_.upload(setup_.plan.inputs, inputs);
  result.complete = executor_.run("train", stop);
  if (!result.complete) return result;
  executor_.download(losses_.data(), setup_.plan.losses);
  double sum = 0;
  for (float loss : losses_) sum += loss;
  result.loss = sum / static_cast<double>(std::max<int64_t>(batch.valid, 1));
  float norm = 0;
  executor_.download(&norm, setup_.plan.scalars, ENG_S_NORM * sizeof(float), sizeof(float));
  result.grad_norm = norm;
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) not_finite(result);
  return result;
}

// The update did nothing (scalars[OK] is 0), so the weights are still those before this step.
void Trainer::not_finite(const Result& result) {
  int64_t step = step_ + 1;
  std::string where;
  for (const Tensor& t : setup_.plan.tensors) {
    if (t.role != "parameter" || t.view.desc.dtype != ENG_F32) continue;
    std::vector<float> values(static_cast<size_t>(count(t.view.desc)));
    executor_.download(values.data(), t.view);
    for (float v : values)
      if (!std::isfinite(v)) where = "parameter " + t.name;
    if (!where.empty()) break;
  }
  if (where.empty()) {
    // The failed step left its norm and flags here; only what the step computes anew may be blamed.
    std::vector<char> blank(bytes(setup_.plan.scalars.desc));
    executor_.upload(setup_.plan.scalars, blank.data());
    upload_counters(step_, step_);
    where = executor_.locate("train");
  }
  throw Error(Exit::numerics,
              fmt::format("step {}: {} is not finite (loss {}, gradient norm {}); first seen in {}", step,
                          std::isfinite(result.loss) ? "the gradient norm" : "the loss", result.loss, result.grad_norm,
                          where.empty() ? "no single tensor: sums overflowed" : where),
              last_checkpoint_.empty()
                  ? "lower optimizer.learning_rate or lengthen schedule.warmup_steps"
                  : "the last checkpoint is " + last_checkpoint_ +
                        "; lower optimizer.learning_rate or lengthen schedule.warmup_steps, then go on from it");
}

Evaluation Trainer::evaluate(int64_t batches) {
  Evaluation out;
  auto start = Clock::now();
  uint64_t samples = data_.info().validation_samples;
  if (!samples) return out;
  batches = std::min<int64_t>(
      batches, static_cast<int64_t>((samples + static_cast<uint64_t>(batch_) - 1) / static_cast<uint64_t>(batch_)));
  std::vector<int32_t> tokens(static_cast<size_t>(batch_ * length_)), labels(tokens.size());
  int64_t counters[ENG_C_COUNT];
  executor_.download(counters, setup_.plan.counters);
  double sum = 0;
  for (int64_t k = 0; k < batches; ++k) {
    for (int64_t r = 0; r < batch_; ++r) {
      uint64_t position = static_cast<uint64_t>(k * batch_ + r);
      int32_t* row = labels.data() + r * length_;
      data_.read(ENG_SPLIT_VALIDATION, position % samples, tokens.data() + r * length_, row);
      if (position >= samples) std::fill(row, row + length_, ENG_IGNORE_LABEL);  // a short last batch
    }
    for (int32_t label : labels) out.tokens += label != ENG_IGNORE_LABEL;
    executor_.upload(setup_.plan.tokens, 0, tokens.data(), tokens.size() * sizeof(int32_t));
    executor_.upload(setup_.plan.labels_in, 0, labels.data(), labels.size() * sizeof(int32_t));
    int64_t zero[ENG_C_COUNT] = {};
    executor_.upload(setup_.plan.counters, zero);
    executor_.run("eval");
    float loss = 0;
    executor_.download(&loss, setup_.plan.losses, 0, sizeof(loss));
    sum += loss;
  }
  executor_.upload(setup_.plan.counters, counters);
  out.loss = out.tokens ? sum / static_cast<double>(out.tokens) : 0;
  out.seconds = since(start);
  return out;
}

Saved Trainer::save(RunDir& run, Progress& progress) {
  RunPoint point;
  point.step = point.updates = step_;
  uint64_t samples = static_cast<uint64_t>(step_ * accumulate_ * batch_);
  point.tokens = samples * static_cast<uint64_t>(length_);
  point.data["train"] = samples;
  point.seeds["seed"] = static_cast<uint64_t>(config_.section("train").integer("seed"));
  point.data_hash = data_.info().content_hash;
  for (const auto& p : registry_.loaded()) point.plugins.push_back({p.id, p.version, p.sha256});
  Saved saved = save_checkpoint(run.checkpoints(), point, tensors(), staging());
  last_checkpoint_ = saved.path.filename();
  collect_checkpoints(run.checkpoints(), config_.section("checkpoint").integer("keep"));
  progress.line(saved_text(last_checkpoint_, saved.bytes, saved.seconds));
  return saved;
}

void Trainer::save_state(RunDir& run, const char* status, Exit exit) {
  RunState state;
  state.status = status;
  state.step = step_;
  state.last_checkpoint = last_checkpoint_;
  state.exit_code = static_cast<int>(exit);
  state.attempt = run.attempt();
  run.write_state(state);
}

Metrics Trainer::measure(const Result& result, double seconds) const {
  Metrics m;
  double tokens = static_cast<double>(accumulate_ * batch_ * length_);
  m.step = step_;
  m.tokens = static_cast<uint64_t>(step_) * static_cast<uint64_t>(tokens);
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.lr = schedule_.at(step_);
  m.tokens_per_second = tokens / seconds;
  double peak = setup_.kernels->info().peak_f32;
  m.mfu = peak > 0 ? setup_.model.flops_per_token() * m.tokens_per_second / peak : NAN;
  m.step_seconds = seconds;
  m.wait_seconds.data = result.data_wait;
  m.device_peak_bytes = arena_bytes(setup_.plan);
  m.host_peak_bytes = peak_rss();
  return m;
}

Exit Trainer::train(RunDir& run, Progress& progress, const Options& options) {
  const Section &train = config_.section("train"), &checkpoint = config_.section("checkpoint");
  int64_t eval_every = train.integer("eval_every"), eval_batches = train.integer("eval_batches"),
          save_every = checkpoint.integer("every");
  MetricsFile metrics(run.metrics(), step_);
  Loader loader(data_, accumulate_ * batch_, length_, static_cast<uint64_t>(step_ * accumulate_ * batch_));
  auto started = Clock::now();
  int64_t first = step_, saved_at = step_ ? step_ : -1;
  bool stopped = false;
  save_state(run, "running", Exit::done);
  try {
    while (step_ < steps_ && !stopped) {
      auto begin = Clock::now();
      Result result = train_step(loader, options.stop);
      if (result.complete) {
        ++step_;
        Metrics m = measure(result, since(begin));
        bool evaluate_now =
            eval_every > 0 && (step_ % eval_every == 0 || step_ == steps_) && data_.info().validation_samples;
        Evaluation evaluation;
        if (evaluate_now) {
          evaluation = evaluate(eval_batches);
          m.eval_loss = evaluation.loss;
        }
        metrics.append(m);
        double left = since(started) / static_cast<double>(step_ - first) * static_cast<double>(steps_ - step_);
        progress.step({step_, steps_, m.loss, m.lr, m.grad_norm, m.tokens_per_second, m.mfu,
                       std::max(m.device_peak_bytes, m.host_peak_bytes), m.wait_seconds.data / m.step_seconds, left});
        if (evaluate_now) progress.line(eval_text(step_, evaluation.loss, evaluation.tokens, evaluation.seconds));
      }
      stopped = step_ < steps_ &&
                ((options.stop && options.stop()) || (options.max_seconds && since(started) > *options.max_seconds));
      bool due = (save_every > 0 && step_ % save_every == 0) || stopped || step_ == steps_;
      if (due && saved_at != step_) {
        metrics.sync();
        save(run, progress);
        saved_at = step_;
        save_state(run, "running", Exit::done);
      }
    }
  } catch (const Error& e) {
    try {
      save_state(run, "failed", e.exit());
    } catch (const Error&) {
      // The disk that failed the step fails this too; the first error is the one to tell.
    }
    throw;
  }
  save_state(run, stopped ? "stopped" : "done", stopped ? Exit::stopped : Exit::done);
  return stopped ? Exit::stopped : Exit::done;
}

Schedule make_schedule(const Config& config) {
  const Section& s = config.section("schedule");
  double learning_rate = config.section("optimizer").number("learning_rate");
  int64_t steps = config.section("train").integer("steps");
  std::string kind = s.string("kind");
  auto is = [](const std::string& a, const char* b) { return a == b; };
  if (s.has("compatible") && is(s.string("compatible"), "deepspeed")) {
    DeepSpeedSchedule d;
    d.kind = is(kind, "WarmupLR")        ? DeepSpeedSchedule::Kind::warmup
             : is(kind, "WarmupDecayLR") ? DeepSpeedSchedule::Kind::warmup_decay
                                         : DeepSpeedSchedule::Kind::warmup_cosine;
    d.warmup =
        is(s.string("warmup_type"), "linear") ? DeepSpeedSchedule::Warmup::linear : DeepSpeedSchedule::Warmup::log;
    d.warmup_num_steps = s.integer("warmup_num_steps");
    d.total_num_steps = s.has("total_num_steps") ? s.integer("total_num_steps") : steps;
    d.min_learning_rate = s.number("warmup_min_lr");
    d.max_learning_rate = s.has("warmup_max_lr")                            ? s.number("warmup_max_lr")
                          : d.kind == DeepSpeedSchedule::Kind::warmup_decay ? 0.001
                                                                            : learning_rate;
    if (d.kind == DeepSpeedSchedule::Kind::warmup_cosine) d.max_learning_rate = learning_rate;
    d.warmup_min_ratio = s.number("warmup_min_ratio");
    d.cos_min_ratio = s.number("cos_min_ratio");
    return Schedule(d);
  }
  OwnSchedule o;
  o.kind = is(kind, "constant") ? OwnSchedule::Kind::constant
           : is(kind, "linear") ? OwnSchedule::Kind::linear
                                : OwnSchedule::Kind::cosine;
  o.warmup = is(s.string("warmup"), "log") ? OwnSchedule::Warmup::log : OwnSchedule::Warmup::linear;
  o.warmup_steps = s.integer("warmup_steps");
  o.learning_rate = learning_rate;
  o.min_learning_rate = s.number("min_learning_rate");
  o.steps = steps;
  return Schedule(o);
}

}  // namespace eng

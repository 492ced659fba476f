// SPDX-License-Identifier: Apache-2.0
#include "session/train/trainer.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/config/names.hpp"
#include "engine/ops.h"
#include "session/json.hpp"
#include "session/model/caller_loss.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/estimate.hpp"
#include "session/planning/peak.hpp"
#include "session/ranks/exchange.hpp"
#include "session/train/lengths.hpp"

namespace eng {
namespace {

// An executor binds collectives to the groups of their ranks, so the groups must exist before it.
Exchange join(const Plan& plan, Communicator* comm) {
  if (!comm) return {};
  comm->make_groups(plan.ranks);
  return [comm](const std::string& mine) { return comm->exchange(mine); };
}

// Only rank 0 benchmarks kernels, while its executor prepares; the others wait for its choices before they prepare.
// Then all prepare the collectives.
std::string before_executor(Device& device, const Exchange& exchange, uint32_t rank, const std::string& own) {
  const std::string choices = rank && device.measures() ? exchange("").front() : own;
  device.choose(choices);
  return choices;
}

constexpr const char* choices_key = "device_choices";  // of a checkpoint's further facts
constexpr const char* reference_key = "reference";

}  // namespace

std::string choices_of(const std::filesystem::path& checkpoint) {
  const std::map<std::string, std::string> facts = read_manifest(checkpoint).point.extra;
  const auto found = facts.find(choices_key);
  return found == facts.end() ? "" : found->second;
}

Trainer::Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data, Communicator* comm,
                 const std::string& choices)
    : config_(config),
      registry_(registry),
      setup_(setup),
      data_(data),
      schedule_(trains() ? make_schedule(config, registry) : Schedule()),
      machine_(new Machine{{registry, setup.kernels->device(), setup.device, setup.plan.ranks.world.local_rank},
                           make_host(setup.offload, config.section("offload"), registry, setup.host.get(),
                                     setup.plan.ranks.world.local_rank)}),
      exchange_(join(setup.plan, comm)),
      choices_(before_executor(machine_->device, exchange_, setup.plan.ranks.world.rank, choices)),
      executor_(setup.plan, machine_->device, *setup.kernels, comm, true, &machine_->host, [this] {
        if (setup_.plan.ranks.world.rank || !machine_->device.measures()) return;
        choices_ = machine_->device.choices();
        if (exchange_) exchange_(choices_);
      }) {
  const Section& train = config.section("train");
  length_ = train.integer("sequence_length");
  seconds_at_peak_ = seconds_at_peak(setup.model, setup.target);
  const Ranks& ranks = setup.plan.ranks;
  cut_ = {train.integer("micro_batch"), train.integer("accumulate"), ranks.row_rank(), ranks.row_size()};
  if (trains()) upload_table(train.integer("steps"));
  if (trains() && caller_loss(config))
    own_gradient_ = setup.plan.constants[caller_constant(setup.model, setup.plan.constant_data)];
  const std::vector<float> nothing(ENG_S_COUNT, 0);
  for (const View& scalars : setup.plan.left) executor_.upload(scalars, nothing.data());
}

// Uploads the numbers of all updates, so that a step needs no values from the host.
void Trainer::upload_table(int64_t steps) {
  const Setup& setup = setup_;
  std::vector<float> rows;  // a few at a time, to avoid a second copy of a long table
  uint64_t uploaded = 0;
  for (int64_t k = 1; k <= steps; ++k) {
    rows.push_back(static_cast<float>(schedule_.at(k)));
    const std::vector<float> more = setup.optimizer.scalars(static_cast<uint64_t>(k));
    if (static_cast<int64_t>(more.size()) + 1 != setup.plan.table.desc.dims[1])
      throw Error(Exit::environment,
                  fmt::format("optimizer {} gave {} scalars for update 1 and {} for update {}", setup.optimizer.name,
                              setup.plan.table.desc.dims[1] - 1, more.size(), k));
    rows.insert(rows.end(), more.begin(), more.end());
    if (k % 1024 && k != steps) continue;
    executor_.upload(setup.plan.table, uploaded, rows.data(), rows.size() * sizeof(float));
    uploaded += rows.size() * sizeof(float);
    rows.clear();
  }
}

// A step reads the numbers of the update that it tries to make.
void Trainer::upload_rate() {
  const auto value = static_cast<float>(rate());
  const auto row = static_cast<uint64_t>(updates_ * setup_.plan.table.desc.dims[1]);
  executor_.upload(setup_.plan.table, row * sizeof(float), &value, sizeof(value));
}

void Trainer::set_rate(std::optional<double> rate) {
  rate_ = rate;
  upload_rate();
}

void Trainer::upload_counters(int64_t step, int64_t updates) {
  int64_t counters[ENG_C_COUNT] = {};
  counters[ENG_C_STEP] = step, counters[ENG_C_UPDATES] = updates;
  if (cut_.world > 1) counters[ENG_C_RANK] = cut_.rank, counters[ENG_C_WORLD] = cut_.world;
  executor_.upload(setup_.plan.counters, counters);
}

// True if "init" gives the reference model its first values, all or some.
bool Trainer::reference_begins() const {
  const std::vector<TensorShare> all = reference_parameters(setup_.plan);
  if (!all.empty() && !reference_.set) throw Error(Exit::bug, "the weights of the reference are not set");
  return !all.empty() &&
         (!reference_.weights || std::any_of(all.begin(), all.end(), [](const TensorShare& t) { return t.optional; }));
}

void Trainer::fill_reference() {
  if (const auto all = reference_parameters(setup_.plan); !all.empty() && reference_.weights)
    reference_.weights(all, fill(), peers());
}

void Trainer::initialise(const Weights& weights) {
  const bool begins = reference_begins();
  std::set<std::string> given;  // parameters that the weights have
  const Fill noted = [&given, into = fill()](const TensorSpec& t, uint64_t first, uint64_t n, const void* data) {
    given.insert(t.name);
    into(t, first, n, data);
  };
  if (!weights || has_optional(setup_.plan) || begins) executor_.run("init");
  if (weights) weights(parameters(setup_.plan), noted, peers());
  fill_reference();
  if (begin_lengths(*this, given) || weights || reference_.weights) executor_.run("publish");
  upload_counters(0, 0);
}

void Trainer::gather(const TensorSpec& spec, uint64_t first, uint64_t n, char* to) {
  constexpr uint64_t tile = uint64_t{1} << 20;  // bytes that ranks exchange at a time
  const Tensor& t = setup_.plan.tensors[spec.id];
  const Read read = reader();
  const bool whole = !t.part && t.cut.count == 1 && setup_.plan.ranks.pipeline == 1;
  if (single_rank() || whole) return read(spec, first, n, to);
  const uint64_t size = dtype_size(t.desc.dtype);
  struct Head {
    uint64_t first, count;
  };
  for (uint64_t at = first; at < first + n; at += tile / size) {
    const uint64_t end = std::min(at + tile / size, first + n);
    std::string mine;
    for (const HeldRange& r : t.ranges) {
      const uint64_t from = std::max(at, r.first), until = std::min(end, r.first + r.count);
      if (from >= until) continue;
      const Head head{from, until - from};
      mine.append(reinterpret_cast<const char*>(&head), sizeof(head));
      const size_t here = mine.size();
      mine.resize(here + head.count * size);
      read(spec, head.first, head.count, mine.data() + here);
    }
    for (const std::string& one : exchange_(mine))
      for (size_t k = 0; k + sizeof(Head) <= one.size();) {
        Head head;
        std::memcpy(&head, one.data() + k, sizeof(head));
        k += sizeof(head);
        if (head.first < at || head.count > end - head.first || head.count * size > one.size() - k)
          throw Error(Exit::communication, "a rank sent another part of a tensor than it holds");
        std::memcpy(to + (head.first - first) * size, one.data() + k, head.count * size);
        k += head.count * size;
      }
  }
}

std::shared_ptr<const void> Trainer::memory() const {
  struct Kept {
    std::shared_ptr<Machine> machine;
    std::shared_ptr<const Arenas> arenas;  // given back before the device
  };
  return std::make_shared<const Kept>(Kept{machine_, executor_.arenas()});
}

// Between programs the transient part of the arena is free, so saving and loading use it as their buffer.
std::span<char> Trainer::staging() {
  const Arena& arena = setup_.plan.arenas[0];
  const uint64_t n = arena.transient + arena.workspace;
  if (!setup_.kernels->host_memory() || n < (uint64_t{1} << 20)) return {};
  return {static_cast<char*>(executor_.transient()), n};
}

void Trainer::load(const std::filesystem::path& checkpoint) {
  if (reference_begins()) executor_.run("init");
  // A precision that rounds as a cast does takes wider values, rounded once; fp32 and strangers' take none.
  const bool round = !trains() || (setup_.precision.table.flags & ENG_AXIS_CASTS);
  const RunPoint point = load_checkpoint(checkpoint, saved_tensors(setup_.plan), fill(), staging(),
                                         trains() ? "" : kParameterRole, peers(), round);
  if (point.data_hash != data_.info().content_hash)
    throw Error(Exit::data,
                fmt::format("{} was written with other data (hash {}, now {})", checkpoint.string(), point.data_hash,
                            data_.info().content_hash),
                "point [data] paths at the same files, or start a new run");
  if (const auto it = point.extra.find(reference_key); it != point.extra.end() && it->second != reference_.hash)
    throw Error(Exit::checkpoint,
                fmt::format("{} was trained with a reference of other weights (hash {}, now {})", checkpoint.string(),
                            it->second, reference_.hash.empty() ? "none" : reference_.hash),
                "point reference.from at the weights of before, or start a new run");
  const auto position = point.data.find("train");
  if (position == point.data.end()) refuse(checkpoint.string(), "does not say how far the data have been read");
  step_ = point.step, updates_ = point.updates, samples_ = position->second, tokens_ = point.tokens;
  last_checkpoint_ = checkpoint.filename(), facts_ = point.extra;
  fill_reference();
  upload_counters(step_, updates_);
  executor_.run("publish");
}

void Trainer::settle() {
  if (!std::exchange(settled_, true)) executor_.run(late_update);
}

// After a step whose early updates assumed something else: they are undone and made again, with what it has found. All
// ranks have found the same.
bool Trainer::update_again() {
  const View& view = setup_.plan.assumed;
  if (!view.buffer) return false;
  std::array<float, ENG_S_COUNT> assumed;
  executor_.download(assumed.data(), view);
  if (!assumed_wrongly(assumed.data(), executor_.host<float>(setup_.plan.results))) return false;
  executor_.run(eng::update_again);
  return true;
}

// The first rows of what the next program copies in.
void Trainer::stage(const Batch& batch, const std::vector<Input>& fields) {
  std::copy(batch.tokens.begin(), batch.tokens.end(), executor_.host<int32_t>(fields[0].view));
  if (fields[1].view.buffer)
    std::copy(batch.labels.begin(), batch.labels.end(), executor_.host<int32_t>(fields[1].view));
  for (size_t f = 2; f < fields.size(); ++f)
    std::copy(batch.others[f - 2].begin(), batch.others[f - 2].end(), executor_.host<char>(fields[f].view));
}

std::optional<Metrics> Trainer::train(const Batch& batch, const Agreed& agreed, double data_wait, bool (*stop)()) {
  const auto start = SteadyClock::now();
  check_loss(batch);
  const bool own = own_gradient_.buffer != 0;
  if (rate_) upload_rate();
  stage(batch);
  const bool counts_any = agreed.divisor > 0;
  executor_.host<float>(setup_.plan.inputs)[0] = own          ? 1.0f
                                                 : counts_any ? 1.0f / static_cast<float>(agreed.divisor)
                                                              : 0.0f;
  // Several ranks stop together, between steps.
  settled_ = true;  // by the first micro-batch
  Metrics m;
  try {
    if (!run_step(batch, single_rank() ? stop : nullptr)) return std::nullopt;
    m.wait_seconds.comm = executor_.waited(false), m.wait_seconds.offload = executor_.waited(true);
    m.updated_again = update_again();
  } catch (const Error& e) {
    if (e.exit() != Exit::disk) throw;  // of a disk it is reported when it failed
    throw Error(e.exit(), fmt::format("step {}: {}", step_ + 1, e.what()), e.help());
  }
  settled_ = setup_.plan.left.empty();
  const View& losses = setup_.plan.ranks.single() ? setup_.plan.losses : setup_.plan.all_losses;
  const float* const values = executor_.host<float>(losses);
  const std::vector<double> sums = loss_sums(setup_.plan, values);
  const Counts counts{counts_any ? agreed.divisor : 1.0, static_cast<double>(cut_.step())};
  const double loss = own ? agreed.own_loss : mean_loss(setup_.plan, sums, counts);
  const float* results = executor_.host<float>(setup_.plan.results);
  const float norm = results[ENG_S_NORM];
  const bool skipped = results[ENG_S_OK] == 0.0f && results[ENG_S_MAY_SKIP] != 0.0f;
  loss_scale_ = static_cast<double>(results[ENG_S_LOSS_SCALE]);
  if (!skipped && (!std::isfinite(loss) || !std::isfinite(norm))) not_finite(loss, norm);
  // The update that this step made, or, where it was skipped, tried to make.
  const int64_t update = updates_ + 1;
  updates_ = executor_.host<int64_t>(setup_.plan.host_counters)[ENG_C_UPDATES];
  ++step_;
  samples_ += cut_.step(), tokens_ += cut_.step() * static_cast<uint64_t>(length_);

  m.step = step_;
  m.tokens = tokens_;
  m.loss = loss;
  if (!own) m.terms = term_means(setup_.plan, sums, counts);
  observe(values, m);
  m.grad_norm = norm;
  m.lr = rate_ ? *rate_ : schedule_.at(update);
  m.loss_scale = loss_scale_;
  m.skipped = skipped;
  m.step_seconds = since(start) + data_wait;
  const double positions = static_cast<double>(cut_.step()) * static_cast<double>(length_);
  m.tokens_per_second = positions / m.step_seconds;
  if (data_.packed()) m.padding = static_cast<double>(agreed.padding) / positions;
  add_sources(values, agreed, m);
  m.mfu = seconds_at_peak_ > 0 ? seconds_at_peak_ * m.tokens_per_second / setup_.plan.ranks.world.size : NAN;
  m.wait_seconds.data = data_wait;
  Beside beside;
  beside.device_overhead = setup_.kernels->info().device_overhead_bytes;
  if (setup_.sampling && !setup_.plan.ranks.world.rank)
    beside.sampling.device = arena_bytes(setup_.sampling->plan).device;
  m.device_peak_bytes = peak_of(setup_.plan, beside).device;
  m.own_memory = !setup_.kernels->host_memory();
  m.host_peak_bytes = peak_resident_bytes();
  return m;
}

// A micro-batch has one sum of losses. It is that of a source where the samples of a micro-batch are those of one
// group.
void Trainer::add_sources(const float* values, const Agreed& agreed, Metrics& m) const {
  const uint64_t first = samples_ - cut_.step();
  for (size_t k = 0; k < agreed.parts.size(); ++k) {
    const Batch::Part& part = agreed.parts[k];
    m.sources.push_back({data_.names()[k], part.samples, part.valid, {}});
    if (cut_.rows != data_.group() || part.divisor <= 0) continue;
    const auto mine = [&](uint32_t rank, uint32_t micro) {
      const uint64_t turn = uint64_t{micro} * cut_.world + rank / setup_.plan.ranks.context;
      return data_.source_of(first + turn * static_cast<uint64_t>(cut_.rows)) == k;
    };
    const Counts counts{part.divisor, static_cast<double>(part.samples)};
    m.sources.back().loss = mean_loss(setup_.plan, loss_sums(setup_.plan, values, mine), counts);
  }
}

void Trainer::observe(const float* values, Metrics& m) const {
  const auto& [objects, shown] = setup_.observers;
  m.own.resize(objects.size());
  for (uint32_t o = 0; o < shown.size(); ++o) {
    const bool due = step_ % shown[o].every == 0, asks = objects[o].table.after_step != nullptr;
    if (!due && !asks) continue;
    const size_t prefix = objects[o].name.size() + 1;
    for (Named& one : observed(setup_.plan, o, values)) {
      const std::string own = one.name.substr(prefix);
      if (asks) m.own[o].push_back({own, one.value});
      if (!due) continue;
      const auto& patterns = shown[o].progress;
      one.on_line = std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, own); });
      m.observed.push_back(std::move(one));
    }
  }
}

// The update did nothing (scalars[OK] is 0), so the weights are still those before this step.
void Trainer::not_finite(double loss, double norm) {
  end_save(true);  // all ranks stop here, and the unfinished checkpoint is good
  std::string where;
  for (const Tensor& t : setup_.plan.tensors) {
    if (t.role != kParameterRole) continue;
    for (const HeldRange& e : t.ranges) {
      std::vector<char> values(t.packed ? e.count * sizeof(float) : bytes(e.view.desc));
      if (t.packed)
        read_packed(executor_, t.packed, e, 0, e.count, reinterpret_cast<float*>(values.data()));
      else
        executor_.download(values.data(), e.view);
      if (where.empty() && !all_finite(values.data(), t.desc.dtype, e.count)) where = "parameter " + t.name;
    }
  }
  if (!single_rank())  // the first rank that found something is used
    for (const std::string& theirs : exchange_(where))
      if (!theirs.empty()) {
        where = theirs;
        break;
      }
  if (where.empty()) {
    // The failed step left its norm and flags here. They are cleared, so that only newly computed values are reported.
    std::vector<char> blank(bytes(setup_.plan.scalars.desc));
    executor_.upload(setup_.plan.scalars, blank.data());
    upload_counters(step_, updates_);
    where = executor_.locate("train");
    if (setup_.plan.assumed.buffer) executor_.run(eng::update_again);  // it began updates again
  }
  const std::string advice = "lower optimizer.learning_rate or lengthen schedule.warmup_steps";
  throw Error(Exit::numerics,
              fmt::format("step {}: {} is not finite (loss {}, gradient norm {}{}); first seen in {}", step_ + 1,
                          std::isfinite(loss) ? "the gradient norm" : "the loss", loss, norm,
                          loss_scale_ == 1 ? "" : fmt::format(", loss scale {}", loss_scale_),
                          where.empty() ? "no single tensor: sums overflowed" : where),
              last_checkpoint_.empty()
                  ? advice
                  : fmt::format("the last checkpoint is {}; {}, then resume from it", last_checkpoint_, advice));
}

double Trainer::gradients(const Batch& batch, double divisor) {
  upload_counters(0, 0);
  stage(batch);
  executor_.host<float>(setup_.plan.inputs)[0] = divisor > 0 ? 1.0f / static_cast<float>(divisor) : 0.0f;
  executor_.run("train");
  const View& losses = setup_.plan.ranks.single() ? setup_.plan.losses : setup_.plan.all_losses;
  return weighted(setup_.plan, loss_sums(setup_.plan, executor_.host<float>(losses))) / (divisor > 0 ? divisor : 1);
}

double Trainer::loss_of(const Batch& batch, const char* program) {
  stage(batch);
  executor_.run(program);
  const float* losses = executor_.host<float>(setup_.plan.losses);
  return weighted(setup_.plan, {losses, losses + std::max<size_t>(setup_.plan.terms.size(), 1)});
}

void Trainer::job_program(uint32_t k, const float* scalars, int64_t counter) {
  upload_counters(0, counter);
  executor_.upload(setup_.plan.scalars, scalars);
  executor_.run(eng::job_program(k));
}

void Trainer::logits(const Batch& batch, const Shape* shape) {
  settle();
  if (setup_.plan.publishes_late) executor_.run("publish");
  stage(batch, shape ? shape->fields : setup_.plan.fields);
  executor_.run(shape ? shape->program : "logits");
}

void Trainer::save_into(const std::filesystem::path& checkpoints) {
  const Section& section = config_.section("checkpoint");
  saver_.emplace(checkpoints, section.integer("keep"), section.boolean("asynchronous"), peers());
}

RunPoint Trainer::point(const std::string& config_hash, const std::map<std::string, std::string>& facts) const {
  RunPoint point;
  point.extra = facts, point.step = step_, point.updates = updates_, point.tokens = tokens_;
  point.loss_scale = loss_scale_, point.data["train"] = samples_;
  point.seeds["seed"] = static_cast<uint64_t>(config_.section("train").integer("seed"));
  point.data_hash = data_.info().content_hash;
  point.config_hash = config_hash;
  if (!choices_.empty()) point.extra[choices_key] = choices_;
  if (const auto bytes = workspace_of(setup_.device)) point.extra[workspace_key] = std::to_string(*bytes);
  if (!reference_.hash.empty()) point.extra[reference_key] = reference_.hash;
  for (const auto& p : registry_.loaded()) point.plugins.push_back({p.id, p.version, p.sha256});
  return point;
}

void Trainer::begin_save(const std::string& config_hash, const std::map<std::string, std::string>& facts) {
  saver_->begin(point(config_hash, facts), written_tensors(setup_.plan, setup_.model), reader(), staging());
}

std::string Trainer::copy(MemoryCopies& copies, const std::string& config_hash,
                          const std::map<std::string, std::string>& facts) {
  return copies.take(point(config_hash, facts), written_tensors(setup_.plan, setup_.model), reader(), staging());
}

std::optional<Saved> Trainer::end_save(bool wait) {
  if (!saver_) return std::nullopt;
  std::optional<Saved> saved = wait ? saver_->finish() : saver_->poll();
  if (saved) {
    last_checkpoint_ = saved->path.filename();
    release_freed_memory();
  }
  return saved;
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "session/embed/embedded.hpp"

#include <cmath>
#include <fstream>
#include <iterator>

#include "session/config/failure.hpp"
#include "session/data/formats.hpp"
#include "session/embed/lent.hpp"
#include "session/embed/turn.hpp"
#include "session/model/activations.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/free_workspace.hpp"
#include "session/report/context.hpp"
#include "session/train/epochs.hpp"

namespace eng {
namespace {

std::atomic<bool> many_ranks{false};                         // a session of several ranks lives
thread_local const std::atomic<bool>* stop_asked = nullptr;  // of the session whose step this thread makes

struct Stoppable {
  explicit Stoppable(const std::atomic<bool>& by) { stop_asked = &by; }
  ~Stoppable() { stop_asked = nullptr; }
};

// `main` cannot know the command line.
std::string own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  while (!all.empty() && !all.back()) all.pop_back();
  for (char& c : all)
    if (!c) c = ' ';
  return all.substr(0, 4096);
}

std::vector<std::string> words(const char* const* list, uint32_t n, const char* what) {
  std::vector<std::string> out;
  for (uint32_t k = 0; k < n; ++k) {
    if (!list || !list[k]) throw Error(Exit::usage, fmt::format("{} {} is NULL", what, k));
    out.emplace_back(list[k]);
  }
  return out;
}

// The slow part of opening data, on one rank, without a report.
void build(const Config& config, Registry& registry, int64_t vocabulary) {
  const Section& train = config.section("train");
  const std::string base = config.base_dir().string();
  for (const DataSource& source : data_sources(config, registry)) {
    if (!source.table.build) continue;
    eng_data_built built{};
    built.struct_size = sizeof(built);
    eng_data_request request{};
    request.struct_size = sizeof(request);
    request.seed = static_cast<uint64_t>(train.integer("seed"));
    request.sequence_length = train.integer("sequence_length");
    request.vocabulary = vocabulary;
    request.base_dir = base.c_str();
    const Options options(source.section);
    const FormatsInUse formats(registry, source.section);
    Sink sink;
    sink.check(source.table.build(options.get(), &request, nullptr, &built, sink.get()), Exit::data, source.where());
  }
}

RunRequest asked(const eng_session_request& r) {
  constexpr uint32_t all =
      ENG_SESSION_ALONE | ENG_SESSION_NO_FILES | ENG_SESSION_GRADIENTS | ENG_SESSION_LOGITS | ENG_SESSION_FORWARD;
  if (r.flags & ~all) throw Error(Exit::usage, fmt::format("flags {:#x} are unknown", r.flags & ~all));
  if (!r.target && !r.text) throw Error(Exit::usage, "neither target nor text is given");
  RunRequest out;
  out.open.target = r.target ? r.target : "text";
  if (r.text) out.open.text = r.text;
  if (r.place) out.open.place = r.place;
  out.open.overrides = words(r.overrides, r.n_overrides, "override");
  for (const std::string& path : words(r.plugin_paths, r.n_plugin_paths, "plugin path"))
    out.open.plugin_paths.emplace_back(path);
  if (r.out) out.out = r.out;
  if (r.resume) out.resume = r.resume;
  const bool forward = (r.flags & ENG_SESSION_FORWARD) != 0;
  if (forward && r.flags & ENG_SESSION_GRADIENTS)
    throw Error(Exit::usage, "a session in which nothing is trained has no gradients",
                "leave out one of ENG_SESSION_FORWARD (train=False) and ENG_SESSION_GRADIENTS (gradients=True)");
  if (forward && r.out) throw Error(Exit::usage, "a session in which nothing is trained has no run directory");
  out.files = !forward && !(r.flags & ENG_SESSION_NO_FILES);
  out.readable = {(r.flags & ENG_SESSION_GRADIENTS) != 0, (r.flags & ENG_SESSION_LOGITS) != 0,
                  words(r.activations, r.n_activations, "activation"), words(r.fields, r.n_fields, "field")};
  out.readable.forward = forward;
  if (r.n_lengths && !r.lengths) throw Error(Exit::usage, "lengths is NULL");
  for (uint32_t k = 0; k < r.n_lengths; ++k) {
    if (r.lengths[k] < 1) throw Error(Exit::usage, fmt::format("lengths: {} is below 1", r.lengths[k]));
    out.readable.lengths.push_back(r.lengths[k]);
  }
  out.tell_all = true;
  out.stop = [] { return stop_asked && stop_asked->load(std::memory_order_relaxed); };
  return out;
}

}  // namespace

// Keeps the messages of a run until the caller takes them.
class Embedded::Events final : public RunListener {
 public:
  explicit Events(const std::function<void(const std::string&)>& note) : note_(note) {}
  void note(const std::string& text) override { note_(text); }
  void passed_over(const CheckpointRow& row) override {
    note_(fmt::format("{} is passed over: {}", row.path.filename().string(), row.problem));
  }
  void reading(const std::filesystem::path&, uint64_t, uint64_t) override {}
  void started(const RunStart&) override {}
  void step(const Metrics& metrics, double) override { metrics_ = metrics; }
  void evaluated(int64_t, const Evaluation&) override {}
  void alert(int64_t step, const std::string& text) override { note_(fmt::format("step {}: {}", step, text)); }
  void saving() override {}
  void saved(const Saved&) override { saved_ = true; }
  void begin() { metrics_.reset(), saved_ = false; }
  const std::optional<Metrics>& metrics() const { return metrics_; }
  bool was_saved() const { return saved_; }

 private:
  const std::function<void(const std::string&)>& note_;
  std::optional<Metrics> metrics_;
  bool saved_ = false;
};

Embedded::Embedded(const eng_session_request& r)
    : request_(asked(r)),
      note_([note = r.note, data = r.data](const std::string& text) {
        const std::string shown = for_terminal(text);
        if (note) note(data, shown.data(), shown.size());
      }),
      events_(std::make_unique<Events>(note_)) {
  const std::string command = r.command ? r.command : own_command();
  const Turn turn(Turn::For::setup);
  Opened opened = open_config(request_.open);
  MemberStart start{command, {}, {}, (r.flags & (ENG_SESSION_ALONE | ENG_SESSION_FORWARD)) != 0};
  member_.emplace(std::move(start));
  open(std::move(opened));
  if (!member_->many()) return;
  if (many_ranks.exchange(true))
    throw Error(Exit::usage, "this process has a session of several ranks already",
                "close it first, or open this one with ENG_SESSION_ALONE (alone=True)");
  many_ = true;
}

Embedded::~Embedded() {
  {
    const Turn turn(Turn::For::setup);
    run_.reset();
    kept_.reset(), tokenizer_.reset();
    opening_.reset();
    member_.reset();
  }
  lent_.reset();
  if (many_) many_ranks = false;
}

void Embedded::open(Opened given) {
  tokenizer_.reset();
  const OpeningOptions options{.trains = !forward(), .without_data = true, .no_data = forward(), .build_data = build};
  opening_.emplace(std::move(given), options, *member_, *events_);
}

void Embedded::need_sound() const {
  if (broken_) throw Error(Exit::usage, "this session has failed: it can only be closed");
}

void Embedded::need_started() {
  need_sound();
  if (!started()) start();
}

void Embedded::start() {
  need_sound();
  if (started()) throw Error(Exit::usage, "this session is started already");
  owner.started();
  const Turn turn(Turn::For::setup);
  sound([&] {
    try {
      if (forward())
        start_forward();
      else
        run_ = std::make_unique<Run>(request_, *opening_, *events_);
    } catch (...) {
      open(std::move(opening_->opened));  // gives back the directory and the memory
      throw;
    }
    tensors_ = tensors_of(opening_->setup.plan);
    lent_ = std::make_shared<const Lent>(opening_->trainer->memory());
    directory_ = opening_->directory.string();
  });
}

std::string Embedded::plan(uint32_t ranks) {
  need_sound();
  if (forward())
    throw Unsupported("nothing is trained in this session: there is no step to plan",
                      "open it without ENG_SESSION_FORWARD (train=False)");
  if (ranks < 1 || ranks > 65536) throw Error(Exit::usage, fmt::format("ranks = {}: 1 to 65536", ranks));
  const Turn turn(Turn::For::setup);
  Config config = opening_->opened.config;
  Registry& registry = *opening_->opened.registry;
  const World world = planned_world(config, ranks);
  if (const std::string epochs = try_count_steps(config, registry, ranks); !epochs.empty()) note_(epochs);
  unsettle(config.section("device"));
  settle(config, planned_workspace(config, registry, world, request_.readable));
  const Setup setup = make_plan_only(config, registry, world, request_.readable);
  for (const std::string& note : setup.notes) note_(note);
  return plan_json(setup.plan, report_context(setup, config));
}

std::string Embedded::activations() {
  need_sound();
  const Turn turn(Turn::For::setup);
  if (started()) return activations_json(opening_->setup.model);
  Readable with;
  with.fields = request_.readable.fields, with.forward = forward();
  return activations_json(make_plan_only(opening_->opened.config, *opening_->opened.registry, {}, with).model);
}

eng_session_info Embedded::describe() const {
  eng_session_info out{};
  out.struct_size = sizeof(out);
  out.rank = member_->rank(), out.ranks = member_->size();
  const Config& config = opening_->opened.config;
  out.steps = forward() || (!run_ && by_epochs(config)) ? 0 : config.section("train").integer("steps");
  out.length = config.section("train").integer("sequence_length");
  out.directory = directory_.c_str();
  out.lr = NAN;
  if (!started()) return out;
  const Setup& setup = opening_->setup;
  const Cut& cut = opening_->trainer->cut();
  out.started = 1;
  out.step = opening_->trainer->step();
  if (run_ && out.step < out.steps) out.lr = opening_->trainer->rate();
  out.rows = cut.rows * cut.accumulate;
  out.micro_rows = cut.rows;
  out.vocabulary = setup.model.info.vocabulary, out.max_length = setup.model.info.max_length;
  out.parameters = setup.plan.parameters;
  out.tensors = tensors_.size();
  out.dl_device_type = device().device_type, out.dl_device_id = device().device_id;
  out.train_samples = opening_->data->info().train_samples;
  out.held_out = opening_->data->info().validation_samples;
  return out;
}

DLDevice Embedded::device() const {
  if (opening_->setup.kernels->host_memory()) return {kDLCPU, 0};
  const eng_device_info& info = opening_->setup.kernels->info();
  return {static_cast<DLDeviceType>(info.dl_device_type), info.dl_device_id};
}

Incoming::FromDevice Embedded::from_device() {
  if (opening_->setup.kernels->host_memory()) return {};
  return [this](void* to, const void* from, uint64_t bytes) { opening_->trainer->download(to, from, bytes); };
}

Batch Embedded::batch(std::span<const eng_tensor_in> fields, BatchShape shape) {
  shape.optional = request_.readable.fields;
  return batch_of(fields, shape, *opening_->data, device(), from_device());
}

// The weights that compute reads follow what callers wrote. Ranks must do it together, so that with several of them a
// writable tensor counts as written for good: its end is not at the same step everywhere.
void Embedded::publish() {
  const bool lent = !writable_.empty();
  changed_ = changed_ || written_ || lent;
  if (!member_->many()) std::erase_if(writable_, [](const auto& w) { return w.expired(); });
  if (written_ || lent) opening_->trainer->publish();
  written_ = false;
}

eng_step_result Embedded::step(std::span<const eng_tensor_in> fields, OwnLoss* own) {
  std::optional<Batch> given;
  try {
    need_started();
    if (!run_)
      throw Unsupported("nothing is trained in this session", "open it without ENG_SESSION_FORWARD (train=False)");
  } catch (...) {
    refuse_all(fields);
    throw;
  }
  const Cut& cut = opening_->trainer->cut();
  if (!fields.empty()) given = batch(fields, {cut.rows * cut.accumulate, opening_->data->length()});
  if (own && !given) throw Error(Exit::usage, "a loss is given without the batch that it is of");
  if (own)
    own->into(*given, {cut.rows, opening_->data->length(), opening_->setup.model.info.vocabulary},
              static_cast<size_t>(cut.accumulate), device(), from_device());
  if (given || !stop_) opening_->trainer->check_loss(given ? *given : Batch());
  eng_step_result out{};
  out.struct_size = sizeof(out);
  if (!run_->more()) {
    const bool last = opening_->trainer->step() >= opening_->opened.config.section("train").integer("steps");
    out.ended = last || !run_->over().empty() ? ENG_ENDED_DONE : ENG_ENDED_STOPPED;
    return out;
  }
  if (!given && !opening_->data->info().train_samples && !opening_->data->info().validation_samples) {
    if (!stop_)
      throw Error(Exit::usage, "the configuration has no data, and the step was given no batch",
                  "give the step a batch, or the configuration [data] paths");
    given.emplace();  // no step is made: nobody reads it
  }
  events_->begin();
  const Turn turn(Turn::For::program);
  const Stoppable stoppable(stop_);
  sound([&] {
    publish();
    run_->step(given ? &*given : nullptr);
    opening_->trainer->settle();  // the caller may look at everything
  });
  out.saved = events_->was_saved();
  if (!events_->metrics()) {
    out.ended = ENG_ENDED_STOPPED;
    return out;
  }
  const Metrics& m = *events_->metrics();
  out.step = m.step, out.tokens = m.tokens, out.loss = m.loss, out.grad_norm = m.grad_norm, out.lr = m.lr;
  out.loss_scale = m.loss_scale, out.eval_loss = m.eval_loss.value_or(NAN), out.seconds = m.step_seconds;
  out.tokens_per_second = m.tokens_per_second, out.mfu = m.mfu;
  out.wait_data = m.wait_seconds.data, out.wait_comm = m.wait_seconds.comm;
  out.device_peak_bytes = m.device_peak_bytes, out.host_peak_bytes = m.host_peak_bytes;
  out.skipped = m.skipped;
  return out;
}

eng_eval_result Embedded::evaluate(std::span<const eng_tensor_in> fields, int64_t batches) {
  std::optional<Batch> given;
  try {
    need_started();
    if (batches < 0) throw Error(Exit::usage, fmt::format("batches = {} is below 0", batches));
  } catch (...) {
    refuse_all(fields);
    throw;
  }
  Trainer& trainer = *opening_->trainer;
  const auto rows = static_cast<size_t>(trainer.cut().rows), length = static_cast<size_t>(opening_->data->length());
  if (!fields.empty()) given = batch(fields, {0, opening_->data->length()});
  if (!given && !opening_->data->info().validation_samples)
    throw Error(Exit::usage,
                forward() ? "[data] is not opened where nothing is trained, and no batch was given"
                          : "nothing is held out, and no batch was given",
                forward() ? "give a batch" : "give a batch, or set data.validation, for example 0.05");
  const char* program = opening_->setup.plan.sites.empty() ? "eval" : eval_with_sites;
  const Turn turn(Turn::For::program);
  const eng_eval_result result = sound([&] {
    publish();
    eng_eval_result out{};
    out.struct_size = sizeof(out);
    if (!given) {
      const Evaluation all = trainer.evaluate(batches ? batches : INT64_MAX, {}, program);
      out.loss = all.loss, out.tokens = all.tokens, out.seconds = all.seconds;
      return out;
    }
    double sum = 0;
    for (size_t at = 0; at < given->tokens.size(); at += rows * length) {
      const auto from = static_cast<std::ptrdiff_t>(at);
      const auto to = static_cast<std::ptrdiff_t>(std::min(at + rows * length, given->tokens.size()));
      Batch one;  // the last one is filled up with rows that do not count
      one.tokens.assign(given->tokens.begin() + from, given->tokens.begin() + to);
      one.labels.assign(given->labels.begin() + from, given->labels.begin() + to);
      one.valid = std::count_if(one.labels.begin(), one.labels.end(), [](int32_t l) { return l != ENG_IGNORE_LABEL; });
      for (const std::vector<char>& all : given->others) {
        std::vector<char>& part = one.others.emplace_back(all.begin() + 4 * from, all.begin() + 4 * to);
        while (part.size() < 4 * rows * length)
          part.insert(part.end(), all.begin(), all.begin() + 4 * static_cast<std::ptrdiff_t>(length));
      }
      one.tokens.resize(rows * length, 0), one.labels.resize(rows * length, ENG_IGNORE_LABEL);
      const Evaluation part = trainer.evaluate(one, program);
      if (part.tokens) sum += part.loss * static_cast<double>(part.tokens);
      out.tokens += part.tokens, out.seconds += part.seconds;
    }
    out.loss = sum / static_cast<double>(out.tokens);
    return out;
  });
  if (!result.tokens)
    throw Error(Exit::usage, "no label counts, so there is no loss",
                given ? "give labels other than -100" : "evaluate other data: all that is held out are labels of -100");
  return result;
}

void Embedded::save() {
  need_sound();
  if (!run_)
    throw Error(Exit::usage, forward() ? "nothing is trained in this session: there is nothing to save"
                                       : "the session is not started: there is nothing to save");
  const Turn turn(Turn::For::setup);
  if (!request_.files) return run_->save();  // it says what is wrong
  sound([&] { run_->save(); });
}

void Embedded::fail(const std::string& text) {
  if (std::exchange(broken_, true) || !run_) return;
  run_->fail(text);
}

void Embedded::close() {
  std::exception_ptr failure;
  {
    const Turn turn(Turn::For::setup);
    try {
      if (run_) {
        const Exit exit = broken_ ? Exit::stopped : run_->end().exit;
        run_.reset();
        opening_.reset();  // nothing may use the communicator any more
        if (!broken_ && member_->many()) member_->leave(exit);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace eng

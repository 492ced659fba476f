// SPDX-License-Identifier: Apache-2.0
#include "session/planning/setup.hpp"

#include <functional>

#include "core/memory/layout.hpp"
#include "core/plan/planner.hpp"
#include "core/verify/verify.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "session/checkpoint/saver.hpp"
#include "session/data/fields.hpp"
#include "session/model/activations.hpp"
#include "session/model/caller_loss.hpp"
#include "session/model/context_parallel.hpp"
#include "session/model/heads.hpp"
#include "session/model/loss.hpp"
#include "session/model/pipeline.hpp"
#include "session/model/recompute.hpp"
#include "session/model/reference.hpp"
#include "session/model/tensor_parallel.hpp"
#include "session/model/transforms.hpp"
#include "session/model/vocabulary_parallel.hpp"
#include "session/objects.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/cost.hpp"
#include "session/planning/estimate.hpp"
#include "session/planning/live.hpp"
#include "session/planning/needs.hpp"
#include "session/planning/notes.hpp"
#include "session/planning/packed.hpp"
#include "session/planning/schedule.hpp"
#include "session/planning/shown.hpp"
#include "session/planning/staged.hpp"
#include "session/planning/traced.hpp"
#include "session/plugins/pins.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {

static Sharding make_sharding(Registry& registry, const Config& config, Ranks& ranks) {
  Section section = config.section("zero");
  const std::string& name = section.string("plugin");
  const bool fast = config.section("comm").string("reduce") == "fast", knows = section.settings().count("fast") > 0;
  if (knows && fast) section.set("fast", true, "comm.reduce");
  if (!knows && fast)
    throw Error(Exit::usage, "[zero] plugin \"" + name + "\" does not support comm.reduce = \"fast\"",
                "remove it, or choose another [zero] plugin");
  return make_sharding(name, registry.table<eng_axis>(ENG_ZERO_KIND, name), section, ranks);
}

static Recompute recompute_of(const Section& section) {
  using Kind = Recompute::Kind;
  for (const auto& [key, kind] : {std::pair("every", Kind::every), {"blocks", Kind::blocks}, {"budget", Kind::budget}})
    if (section.given(key)) return {kind, static_cast<uint64_t>(section.integer(key))};
  return {section.string("policy") == "full" ? Kind::full : Kind::none};
}

namespace {
enum class Use : uint8_t { run, plan, sketch };
}

// If no kernel was asked, one workspace of the card's cap, or what attention takes by a library, stands for the scratch
// of all: those of a queue run one after the other.
static void cap_workspace(Setup& s) {
  if (s.target.workspace) s.plan.arenas[0].workspace = std::max(s.target.workspace, library_scratch(s.plan, s.target));
}

static bool only_f32(const Call& call) {
  const auto f32 = [](const eng_desc& d) { return d.dtype == ENG_F32 || !is_float(d.dtype); };
  return std::all_of(call.in.begin(), call.in.end(), f32) && std::all_of(call.out.begin(), call.out.end(), f32);
}

// Ops are known only of files that the run uses. The file that an unknown op is of, if it is one of the others.
static std::string owner_of_unknown_op(const std::string& message, const Registry& registry) {
  for (const Candidate& file : registry.candidates())
    for (const char* before : {"unknown op ", "unknown init op: "})
      if (file.refused.empty() && message.find(before + file.description.id + ".") != std::string::npos)
        return file.path.string();
  return "";
}

namespace {
// The arguments of the functions of setup.hpp.
struct Asked {
  const Config& config;
  Registry& registry;
  bool training;
  int64_t generate;  // positions; with neither this nor `training`: only for evaluating
  const World& world;
  const Communicator* comm;  // null: not there
  Use use;
  const Readable& readable;
  const Section& section(const char* name) const { return config.section(name); }
  // A model that is not trained is not divided.
  Ranks ranks() const { return training ? divided_ranks(config, world) : Ranks(world); }
};
}  // namespace

static void choose_target(Setup& s, const Asked& a) {
  if (a.use == Use::run) refuse_described(a.config);
  pin_plugins(a.registry, a.section("plugins").strings("sha256"));
  const std::optional<Card> card = described_card(a.config);
  s.device = device_section(a.config, a.registry, card);
  if (has_kernels(a.config, card))
    s.kernels = std::make_unique<Kernels>(a.registry, s.device.string("plugin"), s.device);
  s.target = make_target(a.config, a.registry, card, s.device, s.kernels.get(), a.world.size);
  if (s.kernels) return;
  need_kernels(a.registry, ENG_MODEL_KIND, a.section("model").string("plugin"), s.target.device);
  if (a.readable.job)
    need_kernels(a.registry, ENG_JOB_KIND, a.readable.job->name, s.target.device);
  else if (a.training)
    need_kernels(a.registry, ENG_OPTIMIZER_KIND, a.section("optimizer").string("plugin"), s.target.device);
}

static void make_policies(Setup& s, const Asked& a) {
  const Section &precision = a.section("precision"), &optimizer = a.section("optimizer");
  const Job* const job = a.readable.job;
  s.precision = make_precision(precision.string("plugin"),
                               a.registry.table<eng_axis>(ENG_PRECISION_KIND, precision.string("plugin")), precision,
                               a.ranks().data_world());
  if (job && s.precision.table.begin)
    throw Error(Exit::usage,
                fmt::format("precision.plugin = \"{}\" scales the loss from step to step; a job takes no steps",
                            s.precision.name),
                "choose another, for example \"bf16\" or \"fp32\"");
  if (job)
    s.optimizer = job->asked;
  else if (a.training)
    s.optimizer = make_optimizer(
        optimizer.string("plugin"), a.registry.table<eng_optimizer>(ENG_OPTIMIZER_KIND, optimizer.string("plugin")),
        optimizer, {a.section("train").integer("steps"), make_schedule(a.config, a.registry).peak});
}

// Traces the model: up to what is recomputed. `other`: for samples of another length than the configuration's.
static Model model_of(const Setup& s, const Asked& a, std::vector<std::string>& notes, int64_t other = 0) {
  const Section &train = a.section("train"), &model = a.section("model");
  if (a.ranks().tensor > 1) check_parallel(a.config);
  if (a.ranks().context > 1) check_context(a.config, a.readable.beyond_loss());
  if (a.training) check_pipeline(a.config, a.readable.beyond_loss() || a.readable.gradients);
  const eng_model table = a.registry.table<eng_model>(ENG_MODEL_KIND, model.string("plugin"));
  const std::string described = s.kernels ? "" : s.target.device;
  const bool scores = a.readable.reference, plain = a.generate || a.readable.forward;
  const std::vector<Transform> transforms =
      scores ? std::vector<Transform>() : make_transforms(a.config, a.registry, described);
  Loss loss = scores ? logprobs_loss() : make_loss(a.config, a.registry, described, !plain && !other);
  loss.sequences = train.integer("micro_batch") * train.integer("accumulate") * a.ranks().row_size();
  load_ops(a.registry);
  Offered offered = offered_fields(a.config, a.registry, plain);
  add_fields(offered, a.readable.fields);
  const bool runs = a.use == Use::run;
  Offered with = offered;
  const bool alone = plain || scores;
  std::optional<Reference> reference = alone ? std::nullopt : trace_reference(a.config, table, s.precision, runs, with);
  if (reference) reference->training = a.training;
  std::vector<std::string> frozen = a.training ? train.strings("freeze") : std::vector<std::string>{};
  frozen.insert(frozen.end(), a.readable.resting.begin(), a.readable.resting.end());
  const int64_t length = other ? other : a.generate ? a.generate : train.integer("sequence_length");
  Model out = trace(model, table, a.generate ? a.readable.sequences : train.integer("micro_batch"), length, s.precision,
                    frozen, runs, with, transforms, loss, reference, s.target,
                    a.generate || caller_loss(a.config) ? 1 : s.target.head_rows, a.ranks(),
                    a.section("parallel").boolean("sequence"), notes);
  // A reference of its own weights is not packed; the model's own frozen weights may be.
  const bool base = scores && a.section("reference").string("from") == "base";
  if (!scores || base) choose_packed(out, s.precision, base ? std::vector<std::string>{"*"} : train.strings("freeze"));
  if (a.ranks().tensor > 1) need_divisible(out, a.readable.job);
  if (!alone) need_stored(out, a.config);
  check_blocks(out, model);
  if (caller_loss(a.config) && a.training) check_caller_loss(out);
  if (a.readable.job) need_labels(out, a.config, a.registry);
  if (a.readable.traced && !other) a.readable.traced(out);
  need_fields(a.readable.fields, out);
  if (!alone) compare_fields(offered, out, a.config, notes);
  if (a.training) recompute(out, recompute_of(a.section("recompute")));
  cut_stages(out, a.ranks(), a.section("parallel").strings("cuts"));
  return out;
}

// Loads all plugins whose ops the model may have, then traces it.
static void make_model(Setup& s, const Asked& a) {
  const eng_model table = a.registry.table<eng_model>(ENG_MODEL_KIND, a.section("model").string("plugin"));
  std::set<const void*> files{reinterpret_cast<const void*>(table.declare)};
  for (const Table& given : a.config.section("transforms").as<Tables>("list")) {
    const std::string& plugin = std::get<std::string>(given.values.at("plugin"));
    files.insert(reinterpret_cast<const void*>(a.registry.table<eng_transform>(ENG_TRANSFORM_KIND, plugin).apply));
  }
  // A strategy may bring ops, too.
  if (!a.ranks().single()) a.registry.table<eng_axis>(ENG_ZERO_KIND, a.section("zero").string("plugin"));
  if (a.training && !a.readable.job) s.observers = make_observers(a.config, a.registry);  // these as well
  s.model = model_of(s, a, s.notes);
  for (const auto& [number, t] : s.model.templates)
    for (const Node& node : t.graph.nodes)
      files.insert(node.op->id);  // of a plugin, whose file has the kernels as well
  s.model_overhead = loaded_bytes(files);
  if (!s.kernels || !s.kernels->host_memory()) need_op_kernels(a.registry, s.model, s.target);
}

// The sharding, and the flags of the communicator if its file is there: its table says so, the ranks are not needed.
static std::optional<uint32_t> make_ranks(Setup& s, const Asked& a, PlanRequest& request) {
  request.ranks = a.ranks();
  if (a.world.size == 1) return {};
  if (!request.ranks.single()) {
    s.sharding = make_sharding(a.registry, a.config, request.ranks);
    request.sharding = &*s.sharding;
    if (a.training) need_one_scale(s.precision, *s.sharding);
  }
  const std::string& name = a.section("comm").string("plugin");
  if (!a.registry.find(ENG_COMM_KIND, name)) return {};
  const eng_comm table = a.registry.table<eng_comm>(ENG_COMM_KIND, name);
  s.comm_overhead = table.overhead_bytes;
  return table.flags;
}

static void make_tiers(Setup& s, const Asked& a, PlanRequest& request) {
  // Without training, weights live where they are used; masters are needed only if nothing else can be cast.
  std::set<int32_t> idle;
  if (!a.training) idle = {ENG_ROLE_STATE, ENG_ROLE_GRAD, ENG_ROLE_ACT};
  if (!a.training && (s.precision.table.flags & ENG_AXIS_CASTS)) idle.insert(ENG_ROLE_MASTER);
  request.offload = s.offload = make_offload(a.section("offload"), a.registry, request.traits.discrete, idle);
  if (!s.offload.tiers.empty() && s.kernels && !s.target.host_memory())
    s.host = host_kernels(a.registry, a.section("host"));
  if (a.readable.job) request.offload.update_late = s.offload.update_late = false;
  if (s.offload.update_late && a.training && caller_loss(a.config))
    throw Error(Exit::usage, "offload.update_late: a caller that computes the loss reads the weights between steps",
                "remove it, or choose another loss than \"caller\"");
  check_late(s.offload, !s.observers.objects.empty(), a.section("zero").has("live_limit"));
}

static std::function<uint64_t(const Call&)> workspace_of(const Setup& s, const Communicator* comm) {
  return [&device = *s.kernels, host = s.host.get(), comm, &format = s.precision.name](const Call& call) {
    const Kernels& kernels = call.on_host && host ? *host : device;
    if (call.op->collective) return comm ? comm->workspace(call, kernels.info()) : 0;
    try {
      return kernels.workspace(call);
    } catch (const Error& e) {
      if (!e.help().empty() || only_f32(call)) throw;
      throw Error(e.exit(), e.what(), fmt::format("precision.plugin = \"{}\" chose these types", format));
    }
  };
}

// The lengths of further forwards to the logits. A caller that computes the loss reads the logits of each step.
static std::set<int64_t> lengths_of(const Asked& a) {
  std::set<int64_t> out(a.readable.lengths.begin(), a.readable.lengths.end());
  if (a.training && caller_loss(a.config)) out.insert(a.section("train").integer("sequence_length"));
  return out;
}

// The request refers to parts of `s`.
static PlanRequest make_request(Setup& s, const Asked& a) {
  const Section &train = a.section("train"), &zero = a.section("zero");
  const Job* const job = a.readable.job;
  PlanRequest request{s.model, s.precision, a.training ? &s.optimizer : nullptr, s.target.device, {}};
  const std::optional<uint32_t> communicator = make_ranks(s, a, request);
  request.traits = traits_of(s.target, communicator);
  request.observers = s.observers.objects;
  make_tiers(s, a, request);
  request.bucket = static_cast<uint64_t>(zero.integer("bucket"));
  request.overlap = zero.boolean("overlap");
  request.prefetch = zero.integer("prefetch");
  request.live_limit = zero.has("live_limit") ? static_cast<uint64_t>(zero.integer("live_limit")) : 0;
  request.reduce_per_step = train.string("reduce") == "step";
  if (s.kernels) request.workspace = workspace_of(s, a.comm);
  request.accumulate = !a.training ? 1 : static_cast<uint32_t>(train.integer("accumulate"));
  request.stage = stage_of(request.ranks, s.model);
  request.steps = train.integer("steps");
  request.seed = train.integer("seed");
  request.train = a.training;
  request.evaluate = !a.generate && a.use != Use::sketch;  // it needs less than a step
  request.generate = a.generate > 0;
  request.keep_gradients = a.readable.gradients || job;
  request.job = job;
  if (job && caller_loss(a.config))
    throw Error(Exit::usage, "loss.plugin = \"caller\": a job has no caller that computes the loss",
                "choose another, for example loss.plugin=cross_entropy");
  request.logits =
      (a.readable.logits && !(a.training && caller_loss(a.config))) || (job && job->info.flags & ENG_JOB_POSITIONS);
  if ((request.logits || !lengths_of(a).empty()) && s.model.reference_blocks)
    throw Error(Exit::usage, "logits cannot be read beside training with a reference",
                "remove [reference] and its loss");
  request.activations = select_activations(
      s.model, a.readable.reference ? std::vector{std::string("*.label_logprob.0")} : a.readable.activations);
  request.grad_clip = train.number("grad_clip");
  return request;
}

// offload.update = "both", without a share, and offload.update_early.
static void share_update(Setup& s, const Asked& a, PlanRequest& request) {
  const Section& offload = a.section("offload");
  if (!s.offload.update_on_host) return;
  const Machine machine =
      nominal_machine(machine_of(a.section("comm"), s.target, storage_of(s.offload, offload, a.registry)));
  if (offload.string("update") == "both" && !offload.has("host_share"))
    s.offload.device_share = request.offload.device_share = best_device_share(request, machine);
  if (a.readable.job || !offload.boolean("update_early")) return;
  check_early(!s.observers.objects.empty(), a.section("zero").has("live_limit"));
  s.offload.early_from = request.offload.early_from =
      offload.has("early_share") ? early_block(s.model, offload.number("early_share"), s.offload.ratio)
                                 : best_early_block(request, machine, a.use == Use::sketch);
}

// A forward to the logits computes no loss.
static void drop_losses(std::vector<Activation>& activations, const Model& model) {
  std::erase_if(activations, [&](const Activation& one) {
    return model.templates.at(model.blocks[one.site.block].tmpl).graph.nodes[one.site.node].op->fused_grad;
  });
}

// A plan with forwards of other lengths. The request refers to the model of `s`.
static void plan_shapes(Setup& s, const Asked& a, PlanRequest request) {
  s.plan = emit_plan(request);
  Shapes shapes(s.plan);
  request.accumulate = 1;
  request.evaluate = false, request.logits = true;
  request.observers.clear();
  for (const int64_t length : lengths_of(a)) try {
      std::vector<std::string> told;
      Model model = model_of(s, a, told, length);
      std::swap(s.model, model);
      request.activations = select_activations(s.model, a.readable.activations);
      drop_losses(request.activations, s.model);
      s.shapes.push_back(shapes.add(emit_plan(request), length));
      std::swap(s.model, model);
    } catch (const Error& e) {
      throw Error(e.exit(), fmt::format("the forward of {} tokens: {}", length, e.what()), e.help());
    }
  place_buffers(s.plan);
  verify(s.plan);
}

// Makes the plan, and what follows from it.
static void plan_with(Setup& s, const Asked& a, PlanRequest request) {
  const bool sketch = a.use == Use::sketch;
  share_update(s, a, request);
  if (lengths_of(a).empty())
    s.plan = sketch ? emit_plan(request) : make_plan(request);
  else
    plan_shapes(s, a, request);
  if (sketch) bound_arenas(s.plan);
  if (s.offload.update_on_host && request.traits.discrete && !sketch) {
    const std::unique_ptr<Kernels> other = s.host ? nullptr : host_kernels(a.registry, a.section("host"));
    check_same_bits(s.plan, s.host ? *s.host : *other, s.optimizer.name, s.target.device);
  }
  // A described card's host is not this one.
  if (a.training) s.host_update = host_update(s.plan, s.target.host_memory() ? s.kernels.get() : s.host.get());
  if (s.host_update) s.host_update->device_share = s.offload.device_share, s.host_update->late = s.offload.update_late;
  if (s.host_update) s.host_update->early = early_part(s.model, s.offload.early_from);
  cap_workspace(s);
  s.storage = storage_of(s.offload, a.section("offload"), a.registry);
  s.tiers = tiers_beside(s.plan, a.section("offload"), a.registry);
  if (a.readable.job) s.job = host_bytes_of(*a.readable.job, s.model, s.plan);
  if (a.training && !a.readable.job && a.section("checkpoint").boolean("asynchronous"))
    s.snapshot = snapshot_bytes(written_tensors(s.plan, s.model));
  if (a.training && !a.readable.job && a.section("checkpoint").integer("memory_every") > 0) {
    if (saves_nothing(a.section("checkpoint")))
      throw Error(Exit::usage,
                  "checkpoint.memory_every: the run saves nothing, so it does not go on from copies either",
                  "remove checkpoint.last = false, or checkpoint.memory_every");
    s.copies = memory_copy_bytes(written_tensors(s.plan, s.model), a.world.local_size < a.world.size);
  }
  if (a.training && !a.readable.job && a.section("checkpoint").given("second") && !s.plan.ranks.world.rank)
    s.second =
        second_place_bytes(saved_tensors(s.plan).size(), is_object_address(a.section("checkpoint").string("second")));
}

static void add_notes(Setup& s, const Asked& a) {
  if (a.training)
    for (std::string& note : idle_keys(a.section("zero"), s.plan)) s.notes.push_back(std::move(note));
  if (a.training && a.use != Use::sketch && s.kernels && s.kernels->fallback())
    if (std::string note = left_ops(s.plan, *s.kernels); !note.empty()) s.notes.push_back(std::move(note));
  note_lossy(s.precision, s.notes);
  if (s.sharding) note_lossy(*s.sharding, s.notes);
  if (a.training && a.ranks().tensor == 1 && a.section("parallel").boolean("sequence"))
    s.notes.push_back("parallel.sequence has no effect without parallel.tensor");
  note_threads(a.config, s.target, a.world.local_size, s.notes);
  if (!a.generate) note_length(a.section("model"), s.model.sequence_length, s.model.info.max_length, s.notes);
}

static Setup make(const Asked& a);

// Every rank plans the texts for observers, so that all load the same plugins; the first one makes them.
static void plan_sampling(Setup& s, const Asked& a) {
  int64_t length = 0;
  for (const Observers::One& one : s.observers.shown) length = std::max(length, one.sample_length);
  if (!length) return;
  const int64_t most = s.model.info.max_length;
  if (most && length > most)
    throw Error(Exit::usage,
                fmt::format("[[observers]] sample_length = {} is more than the {} positions of model {}", length, most,
                            s.model.plugin),
                fmt::format("sample_length = {} or less", most));
  const World alone;
  const Readable nothing;
  try {
    Setup made = make({a.config, a.registry, false, length, alone, nullptr, a.use, nothing});
    made.stored = made.plan.tensors.size();
    s.sampling = std::make_shared<const Setup>(std::move(made));
  } catch (const Error& e) {
    throw Error(e.exit(), fmt::format("[[observers]] sample_length, the plan of texts: {}", e.what()), e.help());
  }
}

static Setup make(const Asked& a) {
  try {
    Setup s;
    choose_target(s, a);
    make_policies(s, a);
    make_model(s, a);
    plan_with(s, a, make_request(s, a));
    plan_sampling(s, a);
    add_notes(s, a);
    return s;
  } catch (const Error& e) {
    const std::string file = owner_of_unknown_op(e.what(), a.registry);
    if (file.empty() || !e.help().empty()) throw;
    throw Error(e.exit(), e.what(),
                fmt::format("{} is there, but the run does not use it: a run uses the files of which its configuration "
                            "names something, such as a model or an optimizer, and those whose ops such a plugin lists "
                            "in its description: uses = [\"ID/1\"]",
                            file));
  }
}

Setup make_setup(const Config& config, Registry& registry, int64_t generate, const World& world,
                 const Communicator* comm, const Readable& readable) {
  return make({config, registry, !generate && !readable.forward, generate, world, comm, Use::run, readable});
}

Setup make_plan_only(const Config& config, Registry& registry, const World& world, const Readable& readable) {
  return make({config, registry, !readable.forward, 0, world, nullptr, Use::plan, readable});
}

Setup make_sketch(const Config& config, Registry& registry, const World& world) {
  const Readable nothing;
  return make({config, registry, true, 0, world, nullptr, Use::sketch, nothing});
}

Setup make_evaluation(const Config& config, Registry& registry, const Readable& readable) {
  const World alone;
  return make({config, registry, false, 0, alone, nullptr, Use::run, readable});
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

namespace devices {
namespace {

constexpr int64_t rows = 2, length = 6, vocabulary = 48;

std::string file(const std::string& name) {
  return std::string(ENGINE_PLUGIN_DIR) + "/" + name + ".eng.so";
}

std::string model_text(const std::string& model) {
  if (model == "opt")
    return "plugin = 'opt'\nhidden_size = 32\nffn_dim = 64\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
           "max_position_embeddings = 16\ndropout = 0.1\n";
  if (model == "mamba")
    return "plugin = 'mamba'\nhidden_size = 32\nnum_hidden_layers = 2\nstate_size = 4\ntime_step_rank = 4\n";
  return "plugin = 'llama'\nhidden_size = 64\nintermediate_size = 160\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
         "num_key_value_heads = 2\n";
}

}  // namespace

std::string describe(const Model& m, const On& on) {
  return fmt::format(
      "{} on {} ranks, {} micro-batches; {}, {}, overlap {}, graphs {}, delay {}, seed {}, collectives on {}; {}{}",
      m.name, m.ranks, m.accumulate, on.device, on.strategy, on.overlap, on.graphs, on.delay, on.seed,
      on.on_queues ? "queues" : "the host", on.offload, m.more);
}

eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* name : {"cpu/cpu", "llama/llama", "opt/opt", "mamba/mamba", "optim/optim", "precision/precision",
                             "zero/zero", "offload/host", "transform/low_rank"})
      search.extra.push_back(file(name));
    for (const char* path : {TRAIN_PLUGINS}) search.extra.push_back(path);
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

eng::Config config(const Model& m, const On& on, uint32_t rank) {
  static int world = 0;
  if (rank == 0) ++world;
  std::string text = fmt::format(
      "[model]\n{}vocab_size = {}\n[train]\nsteps = {}\nmicro_batch = {}\nsequence_length = {}\naccumulate = {}\n"
      "grad_clip = 0.5\n[optimizer]\nplugin = 'adamw'\nlearning_rate = 1e-2\nweight_decay = 0.1\n"
      "[zero]\nplugin = '{}'\nbucket = '98304B'\noverlap = {}\n{}"
      "[comm]\nplugin = '{}'\nrank = {}\nsize = {}\nworld = {}\ntimeout = '1min'\n[device]\nplugin = '{}'\n",
      model_text(m.name), vocabulary, steps, rows, length, m.accumulate, on.strategy, on.overlap,
      on.strategy == "two_level" ? "ranks_per_node = 2\n" : "", on.on_queues ? "far_ranks" : "threads", rank, m.ranks,
      world, on.device);
  if (on.device == "far")
    text += fmt::format(
        "plugins = ['{}', '{}']\nkernels = 'cpu'\ndelay = {}\nseed = {}\ngraphs = {}\nheld = {}\nfree = {}\nlate = "
        "{}\npatience = "
        "{}\n"
        "uncapturable = '{}'\nmortal = {}\n",
        file("cpu/cpu"), file("mamba/mamba"), on.delay, on.seed, on.graphs, rank ? -1 : on.held, rank ? -1 : on.freed,
        rank ? -1 : on.late, on.patience, on.uncapturable, on.mortal);
  else
    text += on.device == "cuda" ? "attention = 'own'\n" : "threads = 1\n";
  text += "[offload]\n" + on.offload + m.more;
  return eng::Config::parse(text, "devices.toml", ".", {}, eng::schemas_of(registry()));
}

std::string difference(const Result& a, const Result& b) {
  if (a.size() != b.size()) return "not the same tensors";
  for (size_t t = 0; t < a.size(); ++t) {
    const auto& [name, x] = a[t];
    const auto& y = b[t].second;
    if (name != b[t].first || x.size() != y.size()) return "not the same tensors: " + name;
    for (size_t k = 0; k < x.size(); ++k)
      if (std::memcmp(&x[k], &y[k], sizeof(float)) != 0)
        return fmt::format("{}, element {}: {:.9g} and {:.9g}", name, k, x[k], y[k]);
  }
  return "";
}

Training::Training(const Model& model, const On& on, const Change& change) : model_(model) {
  for (uint32_t r = 0; r < model.ranks; ++r) {
    auto rank = std::make_unique<Rank>(config(model, on, r));
    rank->setup = eng::make_setup(rank->config, registry(), 0, {r, model.ranks, r, model.ranks});
    if (r == 0 && change) change(rank->setup.plan);
    ranks_.push_back(std::move(rank));
  }
  for (auto& rank : ranks_) {
    const eng::Plan& plan = rank->setup.plan;
    if (model.ranks > 1) {
      rank->comm = std::make_unique<eng::Communicator>(registry(), rank->config.section("comm"));
      rank->comm->make_groups(plan.ranks);
    }
    rank->device = std::make_unique<eng::Device>(registry(), on.device, rank->config.section("device"),
                                                 plan.ranks.world.local_rank);
    rank->host = eng::make_host(rank->setup.offload, rank->config.section("offload"), registry(),
                                rank->setup.host.get(), plan.ranks.world.local_rank);
    rank->executor = std::make_unique<eng::Executor>(plan, *rank->device, *rank->setup.kernels, rank->comm.get(),
                                                     on.graphs, &rank->host);
  }
}

Training::~Training() = default;

// On the thread of each rank; throws what the first of them threw.
void Training::all(const std::function<void(Rank&)>& act) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> thrown(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        act(*ranks_[r]);
      } catch (...) {
        thrown[r] = std::current_exception();
        if (ranks_[r]->comm) ranks_[r]->comm->abort("an error");
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : thrown)
    if (one) std::rethrow_exception(one);
}

void Training::begin() {
  all([](Rank& rank) {
    const eng::Setup& s = rank.setup;
    rank.executor->run("init");
    int64_t counters[ENG_C_COUNT] = {};
    if (s.plan.ranks.world.size > 1)
      counters[ENG_C_RANK] = s.plan.ranks.world.rank, counters[ENG_C_WORLD] = s.plan.ranks.world.size;
    rank.executor->upload(s.plan.counters, counters);
    std::vector<float> table;
    for (uint64_t k = 1; k <= steps; ++k) {
      table.push_back(0.01f / static_cast<float>(k));
      for (float x : s.optimizer.scalars(k)) table.push_back(x);
    }
    rank.executor->upload(s.plan.table, table.data());
  });
}

void Training::fill(int step) {
  std::mt19937_64 random(1234 + static_cast<uint64_t>(step));
  float valid = 0;
  const auto n = static_cast<size_t>(model_.accumulate * rows * length);
  for (auto& rank : ranks_) {
    auto *tokens = rank->executor->host<int32_t>(rank->setup.plan.field("tokens")),
         *labels = rank->executor->host<int32_t>(rank->setup.plan.field("labels"));
    for (size_t k = 0; k < n; ++k) {
      tokens[k] = static_cast<int32_t>(random() % vocabulary);
      labels[k] = random() % 10 == 0 ? -100 : static_cast<int32_t>(random() % vocabulary);
      valid += labels[k] >= 0;
    }
  }
  for (auto& rank : ranks_) rank->executor->host<float>(rank->setup.plan.inputs)[0] = 1.0f / valid;
}

void Training::step() {
  all([](Rank& rank) {
    const eng::Plan& plan = rank.setup.plan;
    rank.executor->run("train");
    if (!plan.assumed.buffer) return;
    float assumed[ENG_S_COUNT];
    rank.executor->download(assumed, plan.assumed);
    if (eng::assumed_wrongly(assumed, rank.executor->host<float>(plan.results)))
      rank.executor->run(eng::update_again), ++rank.again;
  });
}

Result Training::run() {
  begin();
  std::vector<float> losses, norms;
  for (int k = 0; k < steps; ++k) {
    fill(k);
    step();
    for (auto& rank : ranks_) {
      const eng::Plan& plan = rank->setup.plan;
      norms.push_back(rank->executor->host<float>(plan.results)[ENG_S_NORM]);
      for (const eng::View& view : {plan.losses, plan.all_losses})
        for (int64_t l = 0; view.buffer && l < eng::count(view.desc); ++l)
          losses.push_back(rank->executor->host<float>(view)[l]);
    }
  }
  if (!plan().left.empty()) all([](Rank& rank) { rank.executor->run(eng::late_update); });
  Result out = {{"losses", losses}, {"norms", norms}};
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (const eng::Tensor& t : ranks_[r]->setup.plan.tensors) {
      std::vector<float> values;
      for (const eng::HeldRange& e : t.ranges) {
        values.resize(values.size() + e.count);
        ranks_[r]->executor->download(values.data() + values.size() - e.count, e.view);
      }
      out.emplace_back(fmt::format("rank {}, {} {}", r, t.role, t.name), std::move(values));
    }
  return out;
}

}  // namespace devices

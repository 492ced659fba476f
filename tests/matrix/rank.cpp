// SPDX-License-Identifier: Apache-2.0
// matrix-rank PLUGIN_DIR WORLD CELLS RESULTS [fault]: one rank of WORLD, started by mpirun where WORLD is above 1.
// Trains every cell of the file CELLS that is for so many ranks, one after the other, and rank 0 appends a line for
// each to the file RESULTS. With `fault`, zero2 reduces one piece twice. tools/matrix makes the cells and compares the
// results.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/execute/executor.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"
#include "tests/equality/plant.hpp"

namespace {

using Cell = std::map<std::string, std::string>;  // its words, KEY=VALUE

constexpr int64_t steps = 20, samples = 12, accumulate = 2, length = 8, vocabulary = 64;

std::string model_text(const std::string& model) {
  if (model == "opt" || model == "opt_gelu")
    return std::string(model == "opt" ? "" : "activation_function = 'gelu'\n") +
           "plugin = 'opt'\nhidden_size = 160\nffn_dim = 640\nnum_hidden_layers = 1\nnum_attention_heads = 4\n"
           "max_position_embeddings = 16\ndropout = 0.1\n";
  if (model == "mamba") return "plugin = 'mamba'\nhidden_size = 224\nnum_hidden_layers = 1\nstate_size = 8\n";
  return fmt::format(
      "plugin = 'llama'\nhidden_size = 160\nintermediate_size = 416\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
      "num_key_value_heads = 2\ntie_word_embeddings = {}\n",
      model == "llama_tied");
}

std::string offload_text(const std::string& what) {
  if (what == "none") return "";
  const bool stored = what == "disks" || what == "some", all = what == "all" || what == "disks";
  const char* tier = stored ? "nvme" : "host";
  std::string out = fmt::format("[offload]\noptimizer = '{}'\n", tier);
  if (what == "device" || what == "half") out += "update = 'device'\n";
  if (what == "half" || what == "some") out += "ratio = 0.5\n";
  if (all) out += fmt::format("gradients = '{0}'\nparameters = '{0}'\nactivations = '{0}'\n", tier);
  // Any file system may be there.
  if (stored)
    out += fmt::format("nvme_paths = ['{}']\nnvme_block = '64KiB'\nnvme_direct = false\n",
                       std::filesystem::temp_directory_path().string());
  return out;
}

// The batch of a whole step is the same for any number of ranks.
std::string config_text(const Cell& cell, uint32_t world) {
  const auto word = [&](const char* key, const char* fallback) {
    const auto at = cell.find(key);
    return at == cell.end() ? std::string(fallback) : at->second;
  };
  const std::string &bucket = cell.at("bucket"), size = bucket == "piece"       ? "1B"
                                                        : bucket == "unlimited" ? "1GiB"
                                                                                : bucket;
  return fmt::format(
      "[model]\n{}vocab_size = {}\n[device]\nplugin = 'cpu'\nthreads = 1\n[train]\nsteps = {}\nmicro_batch = {}\n"
      "sequence_length = {}\naccumulate = {}\ngrad_clip = 0.5\nreduce = '{}'\n[optimizer]\nplugin = 'adamw'\n"
      "learning_rate = 1e-3\nweight_decay = 0.1\n[zero]\nplugin = '{}'\nbucket = '{}'\nprefetch = {}\noverlap = {}\n"
      "[precision]\nplugin = '{}'\n[recompute]\npolicy = '{}'\n{}",
      model_text(cell.at("model")), vocabulary, steps, samples / world, length, accumulate, cell.at("reduce"),
      cell.at("zero"), size, cell.at("prefetch"), cell.at("overlap") == "on", word("format", "fp32"),
      word("recompute", "none"), offload_text(word("offload", "none")));
}

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Rows that follow a rule, with noise, so that there is something to learn.
void sample(uint64_t index, std::vector<int32_t>& tokens, std::vector<int32_t>& labels) {
  auto token = static_cast<int32_t>(mixed(index) % vocabulary);
  for (int64_t t = 0; t < length; ++t) {
    tokens.push_back(token);
    const uint64_t draw = mixed(index * 1000 + static_cast<uint64_t>(t) + 1);
    token = static_cast<int32_t>(draw % 5 ? (token * 5 + 3) % vocabulary : draw / 5 % vocabulary);
    labels.push_back(draw % 11 == 0 ? -100 : token);
  }
}

// Elements that a step's collectives bring together and reduce, for each element of the units.
std::pair<double, double> traffic(const eng::Plan& plan) {
  double gathered = 0, reduced = 0, all = 0;
  for (const eng::Unit& unit : plan.units) all += static_cast<double>(unit.count);
  for (const eng::Segment& segment : plan.program("train").segments)
    for (const eng::Action& action : segment.actions) {
      const eng::Call& call = plan.calls[action.call];
      const std::string id = call.op->id;
      const eng::Phase phase = plan.labels[action.label].phase;
      if (phase == eng::Phase::norm || phase == eng::Phase::losses) continue;
      if (id == ENG_OP_ALL_GATHER) gathered += segment.repeat * static_cast<double>(eng::count(call.out[0]));
      if (id == ENG_OP_ALL_TO_ALL) reduced += segment.repeat * static_cast<double>(eng::count(call.in[0]));
    }
  return {gathered / all, reduced / all};
}

// A part of a tensor as a rank sent it. Offsets are in bytes, from the start of the tensor.
struct Part {
  size_t first, end;
  const char* values;
};

std::vector<Part> parts_of(const std::vector<std::string>& sent, size_t element) {
  std::vector<Part> parts;
  for (const std::string& theirs : sent)
    for (size_t at = 0; at < theirs.size();) {
      uint64_t first = 0, n = 0;
      std::memcpy(&first, theirs.data() + at, 8), std::memcpy(&n, theirs.data() + at + 8, 8);
      parts.push_back({first * element, first * element + n, theirs.data() + at + 16});
      at += 16 + n;
    }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.first < b.first; });
  return parts;
}

// The ranks' parts of every tensor, as one number; rank 0 computes it for all. Throws where two hold different values,
// or none a value.
uint64_t hash_of(const eng::Plan& plan, eng::Executor& executor, eng::Communicator* comm) {
  uint64_t hash = 0;
  for (const eng::Tensor& t : plan.tensors) {
    std::string mine;  // (first, count, values) of each range
    for (const eng::HeldRange& e : t.ranges) {
      const size_t head = mine.size(), n = eng::bytes(e.view.desc);
      mine.resize(head + 16 + n);
      std::memcpy(mine.data() + head, &e.first, 8), std::memcpy(mine.data() + head + 8, &n, 8);
      executor.download(mine.data() + head + 16, e.view);
    }
    const std::vector<std::string> sent = comm ? comm->exchange(mine) : std::vector<std::string>{mine};
    if (comm && comm->world().rank) continue;
    std::string whole(eng::bytes(t.desc), 0);
    size_t known = 0;  // bytes from the start
    for (const Part& part : parts_of(sent, eng::dtype_size(t.desc.dtype))) {
      if (part.first > known || part.end > whole.size()) break;
      const size_t shared = std::min(known, part.end) - part.first;
      if (std::memcmp(&whole[part.first], part.values, shared))
        throw std::runtime_error(fmt::format("ranks hold different values of {} {}", t.role, t.name));
      std::memcpy(&whole[part.first + shared], part.values + shared, part.end - part.first - shared);
      known = std::max(known, part.end);
    }
    if (known != whole.size()) throw std::runtime_error(fmt::format("no rank holds some of {} {}", t.role, t.name));
    hash = XXH3_64bits_withSeed(whole.data(), whole.size(), hash);
  }
  return hash;
}

std::string train(const Cell& cell, eng::Registry& registry, eng::Communicator* comm, bool fault) {
  const eng::World world = comm ? comm->world() : eng::World();
  const eng::Config config =
      eng::Config::parse(config_text(cell, world.size), "cell.toml", ".", {}, schemas_of(registry));
  eng::Setup setup = eng::make_setup(config, registry, 0, world);
  eng::Plan& plan = setup.plan;
  if (fault && cell.at("zero") == "zero2" && !equality::reduce_twice(plan))
    throw std::runtime_error("nothing to reduce twice");
  if (comm) comm->make_groups(plan.ranks);
  eng::Device device(registry, "cpu", config.section("device"));
  eng::Host host = eng::make_host(setup.offload, config.section("offload"), registry, nullptr, world.local_rank);
  eng::Executor executor(plan, device, *setup.kernels, comm, true, &host);
  executor.run("init");
  int64_t counters[ENG_C_COUNT] = {};
  if (comm) counters[ENG_C_RANK] = world.rank, counters[ENG_C_WORLD] = world.size;
  executor.upload(plan.counters, counters);
  std::vector<float> table;
  for (uint64_t k = 1; k <= steps; ++k) {
    table.push_back(1e-3f);
    for (float x : setup.optimizer.scalars(k)) table.push_back(x);
  }
  executor.upload(plan.table, table.data());

  std::vector<float> losses, norms;
  std::vector<double> curve;
  for (uint64_t step = 0; step < steps; ++step) {
    // (micro-batch, rank, row) counts the samples.
    std::vector<int32_t> tokens, labels, others;
    double valid = 0;
    for (uint64_t index = 0; index < accumulate * samples; ++index) {
      const bool mine = index % samples / (samples / world.size) == world.rank;
      std::vector<int32_t> t, l;
      sample(step * accumulate * samples + index, t, l);
      valid += static_cast<double>(std::count_if(l.begin(), l.end(), [](int32_t label) { return label >= 0; }));
      if (mine) tokens.insert(tokens.end(), t.begin(), t.end()), labels.insert(labels.end(), l.begin(), l.end());
    }
    const float inputs[8] = {1.0f / static_cast<float>(valid)};
    executor.upload(plan.field("tokens"), tokens.data());
    executor.upload(plan.field("labels"), labels.data());
    executor.upload(plan.inputs, inputs);
    executor.run("train");
    const eng::View& from = comm ? plan.all_losses : plan.losses;
    std::vector<float> all(static_cast<size_t>(eng::count(from.desc)));
    executor.download(all.data(), from);
    losses.insert(losses.end(), all.begin(), all.end());
    double sum = 0;
    for (float x : all) sum += x;
    curve.push_back(sum / valid);
    norms.emplace_back();
    executor.download(&norms.back(), plan.scalars, ENG_S_NORM * sizeof(float), sizeof(float));
  }
  const auto hash = [](const std::vector<float>& v) { return XXH3_64bits(v.data(), v.size() * sizeof(float)); };
  const auto [gathered, reduced] = traffic(plan);
  const std::string name = setup.kernels->info().name;  // ends in the instruction set: "AMD EPYC, avx2"
  return fmt::format("isa={} losses={:016x} norms={:016x} state={:016x} gathered={:.4f} reduced={:.4f} curve={:.9g}",
                     name.substr(name.rfind(' ') + 1), hash(losses), hash(norms), hash_of(plan, executor, comm),
                     gathered, reduced, fmt::join(curve, ","));
}

int run(char** argv, bool fault) {
  eng::PluginSearch search;
  for (const char* file : {"cpu/cpu", "mpi/mpi", "llama/llama", "opt/opt", "mamba/mamba", "optim/optim",
                           "precision/precision", "zero/zero", "offload/host", "offload/nvme"})
    search.extra.push_back(fmt::format("{}/{}.eng.so", argv[1], file));
  search.environment = false;
  const auto registry = eng::find_plugins(search);
  const std::string world = argv[2];
  std::unique_ptr<eng::Communicator> comm;
  if (world != "1") {
    const eng::Config config = eng::Config::parse("[model]\nplugin = 'llama'\n[comm]\ntimeout = 120\n", "comm.toml",
                                                  ".", {}, schemas_of(*registry));
    comm = std::make_unique<eng::Communicator>(*registry, config.section("comm"));
    if (std::to_string(comm->world().size) != world)
      throw std::runtime_error(fmt::format("started as {} ranks, not {}", comm->world().size, world));
  }
  std::ifstream cells(argv[3]);
  std::ofstream results(argv[4], std::ios::app);
  for (std::string line; std::getline(cells, line);) {
    Cell cell;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (word[0] == '#') break;
      if (equals != std::string::npos) cell[word.substr(0, equals)] = word.substr(equals + 1);
    }
    if (cell.empty() || cell.at("world") != world) continue;
    const std::string result = train(cell, *registry, comm.get(), fault);
    if (!comm || comm->world().rank == 0) results << line << " " << result << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 5) throw std::runtime_error("matrix-rank PLUGIN_DIR WORLD CELLS RESULTS [fault]");
    return run(argv, argc > 5 && std::string(argv[5]) == "fault");
  } catch (const eng::Error& e) {
    fmt::print(stderr, "error {}: {}\n{}\n", static_cast<int>(e.exit()), e.what(), e.help());
  } catch (const std::exception& e) {
    fmt::print(stderr, "wrong: {}\n", e.what());
  }
  return 1;
}

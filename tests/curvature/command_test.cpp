// SPDX-License-Identifier: Apache-2.0
// `engine analyse` with the curvature job: equal bits on two ranks, after a kill, and for every kind of model.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "analysis.hpp"

namespace curvature_command {

using namespace curvature_analysis;

TEST_CASE("an analysis of a run has its files, and every number is finite", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "trained"});
  const Json r = analysed(scratch, "out", {}, "trained");
  for (const char* file : {"results.json", "results_flat.json", "results.csv", "report.html", "response.svg"})
    CHECK(fs::exists(scratch / "out" / file));
  uint64_t all = 0;
  for (const Json& t : r["tensors"]) {
    INFO(t["name"]);
    for (const char* key :
         {"hessian_mean", "hessian_low", "hessian_high", "hessian_abs", "gradient_norm", "weight_norm"})
      CHECK(t[key].is_number());
    all += t["elements"].get<uint64_t>();
  }
  CHECK(r["hessian_data_size"] == all);
  CHECK(r["Wfunc"].get<uint64_t>() + r["Wsens"].get<uint64_t>() + r["Wboth"].get<uint64_t>() == all);
  CHECK(r["activations"].size() == 2);
  for (const Json& one : r["prm_results"]["responses"])
    for (const Json& trial : one["trials"]) {
      if (one["sigma"] == 0.0) CHECK(trial["perplexity_change"] == 0.0);
      if (one["sigma"] == 0.0) CHECK(trial["auc"] == r["prm_results"]["base_auc"]);
    }
  const Json memory = Json::parse(read(scratch / "out" / "results.json")).at("memory");
  const Json &planned = memory.at("planned"), &taken = memory.at("measured");
  CHECK(taken.at("device_peak_bytes") == planned.at("device_peak_bytes"));  // what was allocated there
#ifndef SANITIZED
  const double promise = planned.at("host_peak_bytes"), process = taken.at("host_peak_bytes");
  INFO("planned " << promise << ", measured " << process);
  CHECK(process > taken.at("device_peak_bytes").get<double>());
  CHECK(std::abs(process - promise) < std::max(promise / 100, 1048576.0));
#endif
  CHECK(analysed(scratch, "again", {}, "trained") == r);
  CHECK(analysed(scratch, "threads", {"device.threads=2"}, "trained") == r);
  CHECK(analysed(scratch, "other", {"job.seed=2"}, "trained") != r);
}

TEST_CASE("two ranks with zero3 measure what two ranks without a strategy do", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args two = {"--ranks", "2", "--oversubscribe", "device.threads=1"};
  const auto with = [&](const char* strategy) {
    Args all = two;
    all.push_back(std::string("zero.plugin=") + strategy);
    return all;
  };
  const Json plain = analysed(scratch, "none", with("none"));
  CHECK(analysed(scratch, "zero3", with("zero3")) == plain);
  CHECK(analysed(scratch, "zero2", with("zero2")) == plain);
}

TEST_CASE("an analysis that is killed and resumed measures what one does that is not", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const Json whole = analysed(scratch, "whole");
  const std::string until[] = {"step-00000002", "step-00000007"};  // among the probes; among the responses
  for (const std::string& save : until) {
    INFO(save);
    const std::string out = "part " + save;
    Child child(scratch, words("config.toml", out));
    const auto far = [&] {  // a save is removed when the next one is complete
      const std::vector<std::string> saves = names(scratch / out / "checkpoints");
      return std::any_of(saves.begin(), saves.end(), [&](const std::string& s) { return s.size() == 13 && s >= save; });
    };
    while (child.running() && !far()) usleep(1000);
    child.signal(SIGKILL);
    CHECK(child.wait().killed);
    CHECK_FALSE(fs::exists(scratch / out / "results.json"));
    CHECK(analysed(scratch, out, {}, out) == whole);
  }
}

TEST_CASE("every kind of model is analysed by its own activations", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const std::pair<const char*, const char*> models[] = {
      {"opt", "eng.linear_relu/1"}, {"llama", "eng.gated/1"}, {"mamba", "eng.mamba.causal_conv1d/1"}};
  for (const auto& [model, op] : models) {
    INFO(model);
    const std::string file = std::string(model) + ".toml";
    scratch.write(file,
                  std::string("[model]\nplugin = '") + model +
                      "'\nvocab_size = 256\nhidden_size = 16\nnum_hidden_layers = 2\n" +
                      (model == std::string("mamba") ? "" : "num_attention_heads = 2\n") +
                      "[data]\npaths = ['text.txt']\nvalidation = 0.2\n[train]\nsequence_length = 16\nsteps = 1\n");
    const Json r = analysed(scratch, model, {}, file);
    REQUIRE(r["activations"].size() == 2);
    for (const Json& one : r["activations"]) CHECK(one["op"] == op);
  }
  // ReLU has zeros, the others have none.
  CHECK(measured(scratch / "opt")["activations"][0]["exact_zeros"] > 0.2);
  CHECK(measured(scratch / "llama")["activations"][0]["exact_zeros"] < 0.01);
}

TEST_CASE("groups of tensors have the Fisher matrix of an analysis of all, in less memory", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("opt.toml",
                "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 16\nnum_hidden_layers = 4\nffn_dim = 24\n"
                "num_attention_heads = 2\ndropout = 0.0\n[data]\npaths = ['text.txt']\nvalidation = 0.2\n"
                "[train]\nsequence_length = 16\nsteps = 1\n[job]\nmethod = 'fisher'\n");
  const Json whole = analysed(scratch, "whole", {}, "opt.toml");
  std::map<std::string, Json> expected;
  for (const Json& t : whole["tensors"]) expected[t["name"]] = t;
  const auto planned = [&](const std::string& out) {
    return Json::parse(read(scratch / out / "results.json"))["memory"]["planned"]["device_peak_bytes"].get<double>();
  };
  size_t tensors = 0;
  const std::string others[] = {"['*.layers.2.*', '*.layers.3.*', '*decoder.final*']",
                                "['*embed*', '*.layers.0.*', '*.layers.1.*']"};
  for (size_t group = 0; group < 2; ++group) {
    const std::string out = "group " + std::to_string(group);
    const Json part = analysed(scratch, out, {"train.freeze=" + others[group]}, "opt.toml");
    for (const Json& t : part["tensors"]) {
      const Json& same = expected.at(t["name"]);
      INFO(t["name"]);
      for (const char* key : {"hessian_mean", "hessian_low", "hessian_high", "hessian_abs", "gradient_norm",
                              "weight_norm", "sparsity", "elements"})
        CHECK(t[key] == same[key]);
      ++tensors;
    }
    CHECK(planned(out) < 0.9 * planned("whole"));
  }
  CHECK(tensors == expected.size());
}

namespace {

// Overwrites a tensor of f32 in a file of safetensors.
void plant(const fs::path& file, const std::string& tensor, const std::vector<float>& values) {
  std::string bytes = read(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json place = Json::parse(bytes.substr(8, header)).at(tensor).at("data_offsets");
  const uint64_t first = place.at(0).get<uint64_t>(), last = place.at(1).get<uint64_t>();
  REQUIRE(last - first == values.size() * sizeof(float));
  std::memcpy(bytes.data() + 8 + header + first, values.data(), last - first);
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace

// With weights of 0, a unit of fc1 gives ReLU of its bias for every token.
TEST_CASE("activations are counted as by hand", "[curvature]") {
  Scratch scratch;
  scratch.config();
  scratch.write("opt.toml",
                "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 16\nnum_hidden_layers = 2\nffn_dim = 24\n"
                "num_attention_heads = 2\ndropout = 0.0\n"
                "[data]\npaths = ['text.txt']\nvalidation = 0.2\n[train]\nsequence_length = 16\nsteps = 1\n");
  good(scratch, {"run", "opt.toml", "--out", "run"});
  good(scratch, {"ckpt", "export", "run", "--to", "planted"});
  const std::string fc1 = "model.decoder.layers.1.fc1.";
  std::vector<float> bias(24);
  for (size_t u = 0; u < bias.size(); ++u) bias[u] = u % 3 == 0 ? -1.0f : u % 3 == 1 ? 0.001f : 0.5f;
  plant(scratch / "planted" / "model.safetensors", fc1 + "weight", std::vector<float>(24 * 16));
  plant(scratch / "planted" / "model.safetensors", fc1 + "bias", bias);
  const Json r = analysed(
      scratch, "out",
      {"data.paths=['text.txt']", "data.validation=0.2", "train.sequence_length=16", "job.sparsity_threshold=0.01"},
      "planted");
  const Json& second = r["activations"].at(1);
  CHECK(second["tokens"] == 4 * 16);
  REQUIRE(second["unit_sparsity"].size() == 24);
  for (size_t u = 0; u < 24; ++u) {
    CHECK(second["unit_exact_zeros"][u] == (u % 3 == 0 ? 1.0 : 0.0));
    CHECK(second["unit_sparsity"][u] == (u % 3 == 2 ? 0.0 : 1.0));
  }
  CHECK(second["exact_zeros"].get<double>() == Approx(1.0 / 3).epsilon(1e-12));
  CHECK(second["sparsity"].get<double>() == Approx(2.0 / 3).epsilon(1e-12));
}

#ifndef SANITIZED
TEST_CASE("the curvature job takes the planned memory", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("opt.toml",
                "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 128\nnum_hidden_layers = 5\n"
                "num_attention_heads = 4\nffn_dim = 512\nmax_position_embeddings = 128\ndropout = 0.0\n[data]\npaths = "
                "['text.txt']\nvalidation = 0.2\n"
                "[train]\nsequence_length = 32\nsteps = 1\n[device]\nthreads = 1\n");
  for (const Args& more : {Args{}, Args{"job.partition=row"}, Args{"job.max_rows=0"}, Args{"job.noise_seeds=0"}}) {
    const std::string out = "out " + (more.empty() ? "" : more[0]);
    const Result done = engine(scratch, words("opt.toml", out, more));
    INFO(done.err);
    REQUIRE(done.exit == 0);
    const Json r = Json::parse(read(scratch / out / "results.json"));
    const double planned = r["memory"]["planned"]["host_peak_bytes"], measured = static_cast<double>(done.peak_bytes());
    INFO(out << ": planned " << planned << ", measured " << measured);
    CHECK(std::abs(measured - planned) < std::max(planned / 100, 1048576.0));
  }
}
#endif

TEST_CASE("what the curvature job cannot use is told with its key", "[curvature]") {
  Scratch scratch;
  scratch.config();
  const auto refused = [&](const Args& more, const char* said) {
    const Result result = engine(scratch, words("config.toml", "refused", more));
    INFO(result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, said));
    CHECK_FALSE(fs::exists(scratch / "refused"));
  };
  refused({"job.h_functional=2.0"}, "job.h_functional = 2 is out of range");
  refused({"job.held_windows=1000000"}, "job.held_windows = 1000000: the held-out text has only");
  refused({"data.validation=0"}, "data.validation");
  refused({"job.probe=3"}, "unknown key `probe`");
}

TEST_CASE("OPT-6.7B is planned for a card of 80 GB with states on the host, or by groups of tensors", "[curvature]") {
  Scratch scratch;
  scratch.config();
  scratch.write(
      "opt.toml",
      "[model]\nplugin = 'opt'\npreset = '6.7b'\ndropout = 0.0\n[data]\npaths = ['text.txt']\nvalidation = 0.2\n"
      "[train]\nsequence_length = 512\nsteps = 1\n[recompute]\npolicy = 'full'\n[job]\nwindows = 4\n");
  const auto plan = [&](const std::string& more) {
    return engine(scratch,
                  {"plan", "opt.toml", "--job", "curvature", "device.describe=a800-80g", "host.memory=160GB", more});
  };
  const Result all = plan("train.freeze=[]"), host = plan("offload.optimizer=host");
  CHECK(all.exit == 5);
  CHECK(has(all.out, "DOES NOT FIT"));
  INFO(host.out << host.err);
  CHECK(host.exit == 0);
  for (const char* others : {"'*.layers.8.*', '*.layers.9.*', '*.layers.1?.*', '*.layers.2?.*', '*.layers.3?.*'",
                             "'*embed*', '*.layers.?.*', '*.layers.1?.*', '*.layers.20.*', '*.layers.21.*', "
                             "'*.layers.22.*', '*.layers.23.*'"}) {
    const Result group = plan(std::string("train.freeze=[") + others + "]");
    INFO(group.out << group.err);
    CHECK(group.exit == 0);
    CHECK(has(group.out, "of 79.1 GiB: fits"));
  }
}

TEST_CASE("the curvature job is planned for a card, and refused for a device without its kernels", "[curvature]") {
  Scratch scratch;
  scratch.config();
  const auto plan = [&](const std::string& device) {
    return engine(scratch, {"plan", "config.toml", "--job", "curvature", "device.describe=" + device});
  };
  const Result card = plan("a800-80g");
  INFO(card.out << card.err);
  CHECK(card.exit == 0);
  CHECK(has(card.out, "arena cuda (device)"));
  CHECK(has(card.out, "of 79.1 GiB: fits"));
  CHECK(plan("24GiB").exit == 0);  // of the cpu device
  scratch.write("other.toml",
                "plugin = 'other'\nmemory = '80GiB'\nreserve = '1GiB'\nworkspace = '512MiB'\npeak_f32 = 1e13\n"
                "memory_bandwidth = '1000GB'\npcie = '16GB'\n");
  const Result other = plan("./other.toml");
  INFO(other.out << other.err);
  CHECK(other.exit == 3);
  CHECK(
      has(other.err, "device other has no kernels for the ops of job curvature: it has them for cpu, reference, cuda"));
  CHECK_FALSE(has(other.out, "fits"));
}

}  // namespace curvature_command

// SPDX-License-Identifier: Apache-2.0
// Activations on request: whose values they are, and that keeping them changes nothing else.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>

#include "support.hpp"

using namespace embed;
using Catch::Matchers::Contains;

namespace {

const std::string table = "model.embed_tokens.weight";

engine::Options keeping(engine::Options options, std::vector<std::string> names) {
  options.activations = std::move(names);
  return options;
}

uint64_t size_of(const eng_tensor_info& t) {
  uint64_t n = t.desc.dtype == ENG_BF16 ? 2 : 4;
  for (uint32_t k = 0; k < t.desc.ndim; ++k) n *= static_cast<uint64_t>(t.desc.dims[k]);
  return n;
}

// The bytes of all tensors of a role, by name.
std::map<std::string, std::string> all(engine::Session& run, const std::string& role) {
  std::map<std::string, std::string> out;
  for (const eng_tensor_info& t : run.tensors())
    if (t.role == role) out[t.name].assign(run.take(t.name, role).data<const char>(), size_of(t));
  return out;
}

std::vector<float> floats(engine::Session& run, const std::string& name, const std::string& role = "activation") {
  const engine::Tensor t = run.take(name, role);
  int64_t n = 1;
  for (const int64_t d : t.shape()) n *= d;
  return {t.data<const float>(), t.data<const float>() + n};
}

// Rows of the table of embeddings, 16 wide.
std::vector<float> looked_up(const std::vector<float>& rows, const std::vector<int64_t>& tokens) {
  std::vector<float> out;
  for (const int64_t token : tokens) out.insert(out.end(), rows.begin() + token * 16, rows.begin() + token * 16 + 16);
  return out;
}

// The bytes of the first arena.
uint64_t planned(const engine::Session& run, const std::string& what) {
  const std::string plan = run.plan(), key = "\"" + what + "\": ";
  return std::stoull(plan.substr(plan.find(key) + key.size()));
}

}  // namespace

TEST_CASE("embed: activations are those of the last micro-batch of a step or an evaluation", "[embed]") {
  const Folder folder;
  engine::Options options = keeping(folder.options(), {"embed.output", "head.rms_norm.0"});
  options.flags |= ENG_SESSION_LOGITS;
  engine::Session run(options);
  const std::vector<int64_t> tokens = ids(4 * 16), second(tokens.begin() + 32, tokens.end());
  std::vector<float> rows = floats(run, table, "parameter");
  REQUIRE(run.step({{"tokens", tokens.data(), {4, 16}}}));
  CHECK(run.take("embed.output", "activation").shape() == std::vector<int64_t>{2, 16, 16});
  CHECK(floats(run, "embed.output") == looked_up(rows, second));
  rows = floats(run, table, "parameter");
  run.evaluate({{"tokens", tokens.data(), {2, 16}}});
  CHECK(floats(run, "embed.output") == looked_up(rows, {tokens.begin(), tokens.begin() + 32}));
  // The last one is the input of the logits, which are computed by another program.
  const std::vector<float> last = floats(run, "head.rms_norm.0");
  run.logits({{"tokens", tokens.data(), {2, 16}}});
  CHECK(floats(run, "head.rms_norm.0") == last);
  const std::vector<float> logits = floats(run, "logits");
  std::string output = table;
  for (const eng_tensor_info& t : run.tensors())
    if (t.name == std::string("lm_head.weight")) output = t.name;
  rows = floats(run, output, "parameter");
  for (size_t r = 0; r < 32; ++r)
    for (size_t v = 0; v < 256; ++v) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += static_cast<double>(last[r * 16 + k]) * rows[v * 16 + k];
      if (std::fabs(sum - logits[r * 256 + v]) > 1e-5 * (1 + std::fabs(sum))) FAIL(r << ", " << v);
    }
}

TEST_CASE("embed: an observer sees the activations that are kept", "[embed]") {
  const Folder folder;
  std::ofstream(folder / "config.toml", std::ios::app) << "[[observers]]\nplugin = \"stats\"\n";
  engine::Session run(keeping(folder.options("own", {"train.accumulate=1"}), {"*.output"}));
  REQUIRE(run.step());
  const std::string metrics = read(folder / "own" / "metrics.jsonl");
  for (const std::string block : {"embed", "layers.0"}) {
    double squares = 0;
    for (const float x : floats(run, block + ".output")) squares += static_cast<double>(x) * x;
    const std::string key = "\"stats.activation_norm." + block + "\":";
    const size_t at = metrics.find(key);
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(metrics.substr(at + key.size())) == Approx(std::sqrt(squares)).epsilon(1e-5));
  }
}

TEST_CASE("embed: keeping activations changes no bit, and nothing changes theirs", "[embed]") {
  const Folder folder;
  for (const std::string precision : {"fp32", "bf16"}) {
    std::map<std::string, std::string> first;
    for (const char* how : {"", "recompute.policy=full", "recompute.every=2", "offload.activations=host"}) {
      INFO(precision << " " << how);
      std::vector<std::string> words = {"model.num_hidden_layers=4", "precision.plugin=" + precision};
      if (*how) words.emplace_back(how);
      engine::Session run(keeping(folder.options("", words), {"*"})), plain(folder.options("", words));
      for (int k = 0; k < 3; ++k) {
        const auto a = run.step(), b = plain.step();
        REQUIRE((a && b));
        CHECK(a->loss == b->loss);
        CHECK(a->grad_norm == b->grad_norm);
      }
      CHECK(all(run, "parameter") == all(plain, "parameter"));
      const auto kept = all(run, "activation");
      CHECK(kept.size() > 40);
      if (first.empty()) first = kept;
      CHECK(kept == first);
    }
  }
}

TEST_CASE("embed: activations stay in place, and are read-only", "[embed]") {
  const Folder folder;
  engine::Session run(keeping(folder.options("own"), {"layers.0.*"})), plain(folder.options());
  REQUIRE(run.step());
  const engine::Tensor output = run.take("layers.0.output", "activation");
  const engine::Tensor copy = run.take("layers.0.output", "activation", ENG_TAKE_COPY);
  const void* at = output.data<const float>();
  CHECK(output.read_only());
  REQUIRE(run.step());
  CHECK(run.take("layers.0.output", "activation").data<const float>() == at);
  CHECK(std::memcmp(copy.data<const float>(), at, size_t{2 * 16 * 16 * 4}) != 0);
  std::string why;
  const std::vector<float> ones(2 * 16 * 16, 1.0f);
  CHECK(refused(why, [&] {
          run.write("layers.0.output", {"", ones.data(), {2, 16, 16}}, "activation");
        }) == ENG_UNSUPPORTED);
  // The plan's count is exact: each value once, in whole pages.
  std::map<const void*, uint64_t> memory;
  for (const eng_tensor_info& t : run.tensors())
    if (t.role == std::string("activation")) {
      CHECK(t.flags == (ENG_TENSOR_WHOLE | ENG_TENSOR_ADDRESSABLE));
      memory[run.take(t.name, t.role).data<const char>()] = (size_of(t) + 4095) / 4096 * 4096;
    }
  CHECK(memory.size() > 10);
  uint64_t bytes = 0;
  for (const auto& [address, n] : memory) bytes += n;
  CHECK(planned(run, "persistent") == planned(plain, "persistent") + bytes);
  const std::string plan = read(folder / "own" / "plan.txt");
  CHECK_THAT(plan.substr(0, plan.find("persistent")), Contains("    activations ") && Contains(std::to_string(bytes)));
}

TEST_CASE("embed: a plan that does not fit because of activations says so", "[embed]") {
  const Folder folder;
  const auto limited = [&](uint64_t bytes) {
    return keeping(folder.options("", {"device.memory=" + std::to_string(bytes)}), {"*"});
  };
  engine::Session free(keeping(folder.options(), {"*"})), less(folder.options());
  const uint64_t all_of_it = planned(free, "total"), without = planned(less, "total");
  REQUIRE(all_of_it > without);
  std::string why;
  engine::Session enough(limited(all_of_it)), small(limited(all_of_it - 1));
  enough.start();
  CHECK(refused(why, [&] { small.start(); }) == ENG_NO_MEMORY);
  CHECK_THAT(why, Contains("keep fewer activations for the program"));
}

TEST_CASE("embed: an evaluation that is due leaves the activations of the step", "[embed]") {
  const Folder folder;
  engine::Session with(keeping(folder.options("", {"train.eval_every=1"}), {"*.output"}));
  engine::Session without(keeping(folder.options("", {"train.eval_every=0"}), {"*.output"}));
  const auto a = with.step();
  REQUIRE((a && without.step()));
  CHECK_FALSE(std::isnan(a->eval_loss));
  const auto of_step = all(with, "activation");
  CHECK(of_step == all(without, "activation"));
  with.evaluate({}, 1);
  CHECK(all(with, "activation") != of_step);
}

TEST_CASE("embed: names of activations are listed, and others are refused", "[embed]") {
  const Folder folder;
  engine::Session run(keeping(folder.options(), {"*"})), wrong(keeping(folder.options(), {"layers.*.outptu"}));
  const std::string list = run.activations();
  CHECK(run.info().started == 0);
  CHECK(wrong.activations() == list);
  run.start();
  CHECK(run.activations() == list);
  size_t kept = 0;
  for (const eng_tensor_info& t : run.tensors())
    if (t.role == std::string("activation")) {
      ++kept;
      CHECK_THAT(list, Contains("\"name\": \"" + std::string(t.name) + "\""));
    }
  CHECK(kept > 10);
  CHECK_THAT(list, Contains("\"model.layers.0.mlp.down_proj.weight\""));
  std::string why;
  for (const bool plan : {true, false}) {
    CHECK(refused(why, [&] { plan ? static_cast<void>(wrong.plan()) : wrong.start(); }) == ENG_INVALID);
    CHECK_THAT(why, Contains("`layers.*.outptu` matches no activation of llama") && Contains("layers.0.output"));
  }
  CHECK(refused(why, [&] { run.take("layers.0.outptu", "activation"); }) == ENG_NOT_FOUND);
  CHECK_THAT(why, Contains("did you mean `layers.0.output`?"));
  CHECK(refused(why, [&] { run.take("elsewhere", "activation"); }) == ENG_UNSUPPORTED);
  CHECK_THAT(why, Contains("activations=[...]"));
  eng_session_request request{};
  request.struct_size = sizeof(request), request.target = "x", request.n_activations = 1;
  eng_session* none = nullptr;
  CHECK(refused(why, [&] { engine::call(eng_session_open, &request, &none); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("activation 0 is NULL"));
}

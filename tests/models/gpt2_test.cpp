// SPDX-License-Identifier: Apache-2.0
// gpt2 as read from directories that transformers wrote (tools/goldens/gpt2.py), with their transposed and joined
// matrices: losses and logits. Gradients and updates are in families_test.cpp.
#include "core/program/program.hpp"
#include "from.hpp"
#include "session/plugins/pretrained.hpp"

namespace gpt2_test {

using namespace models;

namespace {

const fs::path directories = models::goldens.parent_path() / "hf_gpt2";
constexpr double tight = 5e-6;

eng::Registry& plugins() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/cpu", "decoders/decoders", "optim/optim", "precision/precision", "data/data"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

const nlohmann::json& expected_of(const std::string& name) {
  static const auto json = nlohmann::json::parse(std::ifstream(directories / "expected.json"));
  return json.at(name);
}

std::vector<int32_t> ids_of(const std::string& name, const char* what) {
  std::vector<int32_t> out;
  for (const auto& row : expected_of(name).at(what))
    for (const auto& id : row) out.push_back(id);
  return out;
}

struct Found {
  double loss = 0;
  std::vector<float> logits;
};

// On the golden's batch; `other`: instead of what the description says of tensors.
Found found(const fs::path& directory, const std::string& name, const eng::Pretrained* other = nullptr) {
  static const eng::SchemaSource schemas = [] {
    eng::SchemaSource all = eng::schemas_of(plugins());
    all.model_of = [](const auto& from, const auto& plugin) {
      return eng::read_model_source(from, plugin, eng::schemas_of(plugins()));
    };
    return all;
  }();
  const eng::Config config =
      eng::Config::parse("[model]\nfrom = '" + directory.string() +
                             "'\n[train]\nmicro_batch = 2\nsequence_length = 12\nsteps = 1\n[device]\nthreads = 1\n",
                         "gpt2.toml", "/", {}, schemas);
  eng::Kernels kernels(plugins(), "cpu", config.section("device"));
  const eng::Precision precision =
      eng::make_precision("fp32", plugins().table<eng_axis>(ENG_PRECISION_KIND, "fp32"), config.section("precision"));
  const eng::Model model = eng::trace_model("gpt2", plugins().table<eng_model>(ENG_MODEL_KIND, "gpt2"),
                                            config.section("model"), 2, 12, ENG_F32);
  eng::PlanRequest request{model, precision, nullptr, "cpu", {}};
  request.workspace = [&](const eng::Call& call) { return kernels.workspace(call); };
  request.steps = 1;
  request.logits = true;
  const eng::Plan plan = eng::make_plan(request);
  eng::Device device(plugins(), "cpu", config.section("device"));
  eng::Executor executor(plan, device, kernels);
  executor.run("init");
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(plan.counters, counters);
  const eng::Fill fill = [&](const eng::TensorSpec& t, uint64_t first, uint64_t n, const void* data) {
    executor.upload(plan.find(t.name, t.role)->whole(), first * 4, data, n * 4);
  };
  eng::load_weights(directory, other ? *other : eng::pretrained_table(config, plugins()), eng::parameters(plan), fill);
  const auto tokens = ids_of(name, "tokens"), labels = ids_of(name, "labels");
  executor.upload(plan.field("tokens"), tokens.data());
  executor.upload(plan.field("labels"), labels.data());
  const auto counted = std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l >= 0; });
  const float inputs[8] = {1.0f / static_cast<float>(counted)};
  executor.upload(plan.inputs, inputs);
  Found out;
  executor.run("logits");
  out.logits.resize(static_cast<size_t>(eng::count(plan.logits.desc)));
  executor.download(out.logits.data(), plan.logits);
  executor.run("train");
  float sum = 0;
  executor.download(&sum, plan.losses);
  out.loss = static_cast<double>(sum) / static_cast<double>(counted);
  return out;
}

// max|a - b| / max|b|.
double logits_error(const std::vector<float>& ours, const std::string& name) {
  const eng::SafetensorsFile file(directories / "logits.safetensors");
  std::vector<float> theirs(file.find(name)->count());
  REQUIRE(theirs.size() == ours.size());
  file.read(*file.find(name), 0, theirs.size(), theirs.data());
  double worst = 0, largest = 0;
  for (size_t k = 0; k < theirs.size(); ++k) {
    worst = std::max(worst, std::abs(double{ours[k]} - double{theirs[k]}));
    largest = std::max(largest, std::abs(double{theirs[k]}));
  }
  return worst / largest;
}

const eng::Pretrained& described() {
  return *plugins().find(ENG_MODEL_KIND, "gpt2")->schema.pretrained;
}

}  // namespace

TEST_CASE("gpt2: loss and logits of transformers' directories are those of transformers", "[gpt2]") {
  for (const std::string name : {"saved", "wide"}) {
    INFO(name);
    const Found ours = found(directories / name, name);
    CHECK(ours.loss == Approx(expected_of(name).at("loss").get<double>()).epsilon(tight));
    CHECK(logits_error(ours.logits, name) < tight);
  }
}

TEST_CASE("gpt2: parts in another order, or a matrix that is not transposed, are other weights", "[gpt2]") {
  eng::Pretrained swapped = described();
  std::swap(swapped.regroup.at(0).model[0], swapped.regroup.at(0).model[2]);
  CHECK(logits_error(found(directories / "saved", "saved", &swapped).logits, "saved") > 1e-2);
  eng::Pretrained straight = described();  // a square matrix, which has the same shape
  const size_t before = straight.transpose.size();
  std::erase(straight.transpose, "transformer.h.*.attn.c_proj.weight");
  REQUIRE(straight.transpose.size() == before - 1);
  CHECK(logits_error(found(directories / "saved", "saved", &straight).logits, "saved") > 1e-2);
  eng::Pretrained across = described();
  across.regroup.at(0).axis = 0;
  CHECK_THAT(eng::test::refusal(eng::Exit::checkpoint, [&] { found(directories / "saved", "saved", &across); }),
             Catch::Contains("transformer.h.1.attn.c_attn.weight: is [16, 48] in the file, [48, 16] in the model"));
}

TEST_CASE("gpt2: what a configuration cannot have is refused", "[gpt2]") {
  const eng::test::Scratch scratch;
  const auto with = [&](const std::string& from, const std::string& to) {
    fs::remove_all(scratch / "saved");
    fs::copy(directories / "saved", scratch / "saved", fs::copy_options::recursive);
    edit(scratch / "saved" / "config.json", from, to);
    try {
      found(scratch / "saved", "saved");
    } catch (const eng::Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(with("\"n_head\": 2", "\"n_head\": 3"),
             Catch::Contains("hidden_size (16) must be a multiple of num_attention_heads (3)"));
  CHECK_THAT(with("\"attn_pdrop\": 0.0", "\"attn_pdrop\": 0.1"), Catch::Contains("set attn_pdrop = 0 in [model]"));
  CHECK_THAT(with("\"attn_pdrop\": 0.0,", ""), Catch::Contains("set attn_pdrop = 0 in [model]"));  // then it is 0.1
  CHECK_THAT(with("\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true"),
             Catch::Contains("`scale_attn_by_inverse_layer_idx` is true; this plugin supports false"));
  CHECK_THAT(with("\"add_cross_attention\": false", "\"add_cross_attention\": true"),
             Catch::Contains("`add_cross_attention` is true: attention to an encoder"));
  CHECK_THAT(with("\"n_embd\": 16", "\"n_embd\": 32"),
             Catch::Contains("transformer.h.0.attn.c_attn.weight: is [16, 48] in the file, [32, 96] in the model"));
}

}  // namespace gpt2_test

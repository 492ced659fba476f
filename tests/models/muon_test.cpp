// SPDX-License-Identifier: Apache-2.0
// The updates that muon emits, run by the kernels, against a golden that NumPy computed from the published formulas.
#include <catch2/catch.hpp>
#include <fstream>

#include "core/memory/layout.hpp"
#include "core/plan/emitter.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "engine_run.hpp"
#include "session/config/schemas.hpp"

namespace muon_test {

using namespace models;
using Json = nlohmann::json;

namespace {

Json read_golden(const std::string& name) {
  return Json::parse(std::ifstream(std::string(ENGINE_SOURCE_DIR) + "/tests/models/golden/" + name));
}
const Json& golden() {
  static const Json all = read_golden("muon.json");
  return all;
}
const Json& golden_of_neurons() {
  static const Json all = read_golden("normuon.json");
  return all;
}

// One matrix (M, N) with its gradient and momentum, and the update of it: program "update".
class Matrix {
 public:
  Matrix(const Json& about, const std::string& device, int32_t dtype)
      : settings_(about["settings"]),
        plugin_(about.value("plugin", "muon")),
        dtype_(dtype),
        config_(eng::Config::parse(text(device), "muon.toml", ".", {}, schemas_of(registry()))),
        table_(registry().table<eng_optimizer>(ENG_OPTIMIZER_KIND, plugin_)),
        optimizer_(eng::make_optimizer(plugin_, table_, config_.section("optimizer"), {3, 0.125})),
        kernels_((eng::load_ops(registry()), registry()), device, config_.section("device")) {
    shape_ = eng::make_desc(dtype, {about["shape"][0], about["shape"][1]});
    emit(device);
    device_ = std::make_unique<eng::Device>(registry(), device, config_.section("device"));
    executor_ = std::make_unique<eng::Executor>(plan_, *device_, kernels_);
    float scalars[ENG_S_COUNT] = {};
    scalars[ENG_S_CLIP] = settings_["clip"], scalars[ENG_S_OK] = 1, scalars[ENG_S_LR] = settings_["learning_rate"];
    executor_->upload(scalars_, scalars);
    put(weight_, about["weight"]);
  }
  void step(const Json& gradient, bool counts = true) {
    const float ok = counts;
    executor_->upload(scalars_, ENG_S_OK * sizeof(float), &ok, sizeof(float));
    put(gradient_, gradient);
    executor_->run("update");
  }
  // Largest difference from `theirs`, as a part of its largest number.
  double weight_error(const Json& theirs) { return error(weight_, theirs); }
  double momentum_error(const Json& theirs) { return error(momentum_, theirs); }
  double neurons_error(const Json& theirs) { return error(neurons_, theirs); }
  std::vector<double> weight() { return values(weight_); }
  // The bytes of memory that the update needs besides what stays.
  uint64_t scratch() const { return plan_.arenas[0].transient; }

 private:
  std::string text(const std::string& device) const {
    std::string out =
        "[model]\nplugin = 'llama'\n[device]\nplugin = '" + device + "'\n[optimizer]\nplugin = '" + plugin_ + "'\n";
    for (const auto& [key, value] : settings_.items())
      if (key != "clip") out += key + " = " + value.dump() + "\n";
    return out;
  }
  void emit(const std::string& device) {
    plan_.arenas.push_back({device, "device", 0, 0, 0});
    eng::Emitter emitter(plan_, [this](const eng::Call& call) { return kernels_.workspace(call); });
    const eng_desc flat = eng::make_desc(dtype_, {eng::count(shape_)});
    weight_ = emitter.persistent("weight", eng::Line::weights, flat, true);
    gradient_ = emitter.persistent("gradient", eng::Line::gradients, flat, true);
    momentum_ = emitter.persistent("momentum", eng::Line::optimizer, flat, true);
    neurons_ = emitter.persistent("neurons", eng::Line::optimizer, eng::make_desc(dtype_, {shape_.dims[0]}), true);
    scalars_ = emitter.persistent("scalars", eng::Line::step, eng::make_desc(ENG_F32, {ENG_S_COUNT}), true);
    emitter.begin_program("update");
    emitter.begin_segment("update", 1);
    emitter.label(eng::Phase::step);
    const eng_parameter parameter = {
        sizeof(eng_parameter), 0, "matrix", &shape_, optimizer_.groups[0]->options.get(), 1, 3, 0, 0};
    eng_state_rule rules[4] = {};
    uint32_t n = 0;
    REQUIRE(table_.states(optimizer_.self.get(), rules, 4, &n, nullptr) == ENG_OK);
    REQUIRE(n == (plugin_ == "normuon" ? 4 : 3));
    for (int k : {0, 1}) {
      eng_state_shape has = {sizeof(eng_state_shape), ENG_STATE_ELEMENTS, 0, 0, 0, 0, {}};
      REQUIRE(rules[k].shape(optimizer_.self.get(), &parameter, &has, nullptr) == ENG_OK);
      CHECK(has.kind == (k == 0 ? ENG_STATE_ELEMENTS : ENG_STATE_NONE));
      CHECK(has.whole == (k == 0));
    }
    for (uint32_t stage : {ENG_STAGE_BEFORE, ENG_STAGE_WHOLE, ENG_STAGE_AFTER}) {
      const bool whole = stage == ENG_STAGE_WHOLE;
      eng::EmittingBuilder builder(emitter, plan_.ranks, "update");
      const eng_range range = {&parameter, 0, static_cast<uint64_t>(eng::count(shape_)), 0};
      const eng_id states[4] = {whole ? 0 : builder.add(momentum_, true), 0, 0,
                                whole && n > 3 ? builder.add(neurons_, true) : 0};
      const eng_update run = {sizeof(eng_update),
                              0,
                              whole ? 0 : builder.add(weight_, true),
                              builder.add(whole ? eng::reshape(gradient_, shape_) : gradient_, true),
                              0,
                              builder.add(scalars_),
                              states,
                              n,
                              stage,
                              &range,
                              1,
                              0,
                              0};
      REQUIRE(table_.update(optimizer_.self.get(), &builder, &run, nullptr) == ENG_OK);
      builder.check("muon");
    }
    eng::place_waits(plan_);
    eng::place_buffers(plan_);
    eng::verify(plan_);
  }
  void put(const eng::View& view, const std::vector<double>& values) {
    const std::vector<float> narrow(values.begin(), values.end());
    executor_->upload(view, dtype_ == ENG_F64 ? static_cast<const void*>(values.data()) : narrow.data());
  }
  double error(const eng::View& view, const std::vector<double>& theirs) {
    const std::vector<double> ours = values(view);
    double difference = 0, size = 0;
    for (size_t k = 0; k < theirs.size(); ++k)
      difference = std::max(difference, std::abs(ours[k] - theirs[k])), size = std::max(size, std::abs(theirs[k]));
    return difference / size;
  }
  std::vector<double> values(const eng::View& view) {
    std::vector<double> wide(static_cast<size_t>(eng::count(view.desc)));
    std::vector<float> narrow(wide.size());
    executor_->download(dtype_ == ENG_F64 ? static_cast<void*>(wide.data()) : narrow.data(), view);
    if (dtype_ != ENG_F64) std::copy(narrow.begin(), narrow.end(), wide.begin());
    return wide;
  }

  const Json settings_;
  const std::string plugin_;
  const int32_t dtype_;
  eng::Config config_;
  eng_optimizer table_;
  eng::Optimizer optimizer_;
  eng::Kernels kernels_;
  eng_desc shape_{};
  eng::Plan plan_;
  eng::View weight_, gradient_, momentum_, neurons_, scalars_;
  std::unique_ptr<eng::Device> device_;
  std::unique_ptr<eng::Executor> executor_;
};

// The largest error of any step of all cases with these products.
double worst(const std::string& device, int32_t dtype, const std::string& products = "f32",
             const Json& all = golden()) {
  double most = 0;
  for (const Json& about : all["cases"]) {
    if (about["settings"]["products"] != products) continue;
    Matrix matrix(about, device, dtype);
    for (size_t k = 0; k < about["gradients"].size(); ++k) {
      matrix.step(about["gradients"][k]);
      most = std::max(most, matrix.weight_error(about["weights"][k]));
    }
    most = std::max(most, matrix.momentum_error(about["momentum"]));
    if (about.contains("neurons")) most = std::max(most, matrix.neurons_error(about["neurons"]));
  }
  return most;
}

// I - 2 v v^T / (v^T v) with v = (1, 2, ..., n): orthogonal.
double reflection(int64_t n, int64_t i, int64_t j) {
  const auto size = static_cast<double>(n);
  return (i == j ? 1 : 0) - 12.0 * static_cast<double>((i + 1) * (j + 1)) / (size * (size + 1) * (2 * size + 1));
}

// The singular values of what one update without momentum makes of a matrix with singular values from 1 to 0.01, in
// their order, and the largest of what should be 0 beside them.
struct Values {
  std::vector<double> singular;
  double other = 0;
};
Values orthogonal(const std::string& device, int64_t M, int64_t N, const Json& changes) {
  const int64_t rank = std::min(M, N);
  Json about = golden()["cases"][0], gradient = Json::array();
  about["shape"] = {M, N};
  about["settings"].update({{"momentum", 0.0}, {"scale", "none"}, {"learning_rate", 1.0}, {"clip", 1.0}});
  about["settings"].update(changes);
  about["weight"] = std::vector<double>(static_cast<size_t>(M * N), 0.0);
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < rank; ++k)
        sum += reflection(M, i, k) * std::pow(0.01, static_cast<double>(k) / static_cast<double>(rank - 1)) *
               reflection(N, k, j);
      gradient.push_back(sum);
    }
  Matrix matrix(about, device, ENG_F32);
  matrix.step(gradient);
  const std::vector<double> weight = matrix.weight();  // minus the orthogonal matrix
  Values out;
  for (int64_t a = 0; a < rank; ++a)
    for (int64_t b = 0; b < rank; ++b) {
      double sum = 0;
      for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < N; ++j) sum -= reflection(M, a, i) * weight[i * N + j] * reflection(N, j, b);
      if (a == b)
        out.singular.push_back(sum);
      else
        out.other = std::max(out.other, std::abs(sum));
    }
  return out;
}

}  // namespace

TEST_CASE("muon is the published update, in f64 to the last digits and in f32 as far as that goes") {
  CHECK(golden()["cases"].size() == 11);
  CHECK(worst("reference", ENG_F64) < 1e-12);
  CHECK(worst("reference", ENG_F32) < 1e-5);
  CHECK(worst("cpu", ENG_F32) < 1e-5);
}

TEST_CASE("muon with products of bf16 is the iteration in f64 that rounds what is multiplied") {
  // A sum in another order or in f32 rounds to a neighbour now and then. bf16 has 8 bits.
  CHECK(worst("reference", ENG_F32, "bf16") < 1e-3);
  CHECK(worst("cpu", ENG_F32, "bf16") < 4e-3);
}

TEST_CASE("normuon is the published update") {
  const Json& all = golden_of_neurons();
  CHECK(all["cases"].size() == 7);
  CHECK(worst("reference", ENG_F64, "f32", all) < 1e-12);
  CHECK(worst("reference", ENG_F32, "f32", all) < 1e-5);
  CHECK(worst("cpu", ENG_F32, "f32", all) < 1e-5);
  CHECK(worst("cpu", ENG_F32, "bf16", all) < 4e-3);
}

// Rows of several chunks, more of them than threads.
TEST_CASE("normuon gives the rows of a wide matrix one size", "[.slow]") {
  Json wide = golden_of_neurons()["cases"][0];
  wide["shape"] = {11, 9001}, wide["settings"]["steps"] = 1;
  for (const char* key : {"weight", "gradient"}) {
    Json numbers = Json::array();
    for (int k = 0; k < 11 * 9001; ++k) numbers.push_back(std::sin(k * (key[0] == 'w' ? 0.7 : 1.3)) * (1 + k % 7));
    wide[key] = numbers;
  }
  wide["settings"]["neuron_beta"] = 0.0, wide["settings"]["weight_decay"] = 0.0;
  Matrix matrix(wide, "cpu", ENG_F32);
  matrix.step(wide["gradient"]);
  const std::vector<double> after = matrix.weight();
  double least = HUGE_VAL, most = 0, sum = 0;
  for (size_t i = 0; i < 11; ++i) {
    double row = 0;
    for (size_t j = 0; j < 9001; ++j) {
      const double moved =
          after[i * 9001 + j] - static_cast<double>(static_cast<float>(wide["weight"][i * 9001 + j].get<double>()));
      row += moved * moved;
    }
    least = std::min(least, row), most = std::max(most, row), sum += row;
  }
  CHECK(std::sqrt(sum) == Approx(0.125 * 0.2 * std::sqrt(11.0 * 9001)).epsilon(1e-4));
  CHECK(most / least == Approx(1).epsilon(1e-3));
  // The twin: without the second moments the rows differ.
  Json plain = wide;
  plain["plugin"] = "muon", plain["settings"].erase("neuron_beta");
  Matrix other(plain, "cpu", ENG_F32);
  other.step(wide["gradient"]);
  CHECK(other.weight() != after);
}

TEST_CASE("a step of normuon that does not count changes nothing") {
  const Json& about = golden_of_neurons()["cases"][0];
  for (const std::string& device : devices) {
    Matrix matrix(about, device, ENG_F32);
    Json broken = about["gradients"][0];
    for (auto& x : broken) x = 1e30;
    matrix.step(broken, false);
    for (const Json& gradient : about["gradients"]) matrix.step(gradient);
    CHECK(matrix.weight_error(about["weights"].back()) < 1e-5);
    CHECK(matrix.neurons_error(about["neurons"]) < 1e-5);
  }
}

TEST_CASE("muon brings singular values near 1") {
  struct Band {
    const char* coefficients;
    double least, most;
  };
  for (const auto& [coefficients, least, most] : {Band{"jordan", 0.66, 1.22}, {"polar_express", 0.83, 1.14}})
    for (const char* products : {"f32", "bf16"})
      for (const std::string& device : devices)
        for (const auto& [M, N] : {std::pair<int64_t, int64_t>(12, 20), {20, 12}}) {
          const Values made = orthogonal(device, M, N, {{"coefficients", coefficients}, {"products", products}});
          INFO(device << " " << coefficients << " " << products << " " << M << " x " << N);
          CHECK(*std::min_element(made.singular.begin(), made.singular.end()) > least);
          CHECK(*std::max_element(made.singular.begin(), made.singular.end()) < most);
          CHECK(made.other < (products == std::string("f32") ? 1e-3 : 0.1));
        }
}

TEST_CASE("products of bf16 need half the memory") {
  uint64_t bytes[2] = {};
  for (size_t k = 0; k < 2; ++k) {
    Json about = golden()["cases"][0];
    about["shape"] = {128, 192}, about["weight"] = std::vector<double>(size_t{128} * 192, 0.0);
    about["settings"]["products"] = k == 0 ? "f32" : "bf16";
    bytes[k] = Matrix(about, "cpu", ENG_F32).scratch();
  }
  CHECK(bytes[0] == 4 * (2 * 128 * 192 + 128 * 128));
  CHECK(bytes[1] == bytes[0] / 2);
}

TEST_CASE("an unknown kind of products or coefficients is refused") {
  for (const auto& [key, value] : {std::pair("products", "f16"), {"coefficients", "newton"}}) {
    Json about = golden()["cases"][0];
    about["settings"][key] = value;
    CHECK_THROWS_WITH(Matrix(about, "cpu", ENG_F32), Catch::Contains(key) && Catch::Contains(value));
  }
}

TEST_CASE("muon with one setting changed is seen") {
  for (const auto& [key, value] : {std::pair<const char*, Json>("steps", 4),
                                   {"nesterov", false},
                                   {"scale", "none"},
                                   {"coefficients", "polar_express"}}) {
    Json about = golden()["cases"][0];
    about["settings"][key] = value;
    Matrix matrix(about, "reference", ENG_F64);
    // After one step the momentum is the gradient, and its scale does not matter.
    for (size_t k = 0; k < 2; ++k) matrix.step(about["gradients"][k]);
    INFO(key);
    CHECK(matrix.weight_error(about["weights"][1]) > 1e-4);
  }
}

TEST_CASE("a step that does not count changes neither the matrix nor its momentum") {
  const Json& about = golden()["cases"][0];
  for (const std::string& device : devices) {
    Matrix matrix(about, device, ENG_F32);
    Json broken = about["gradients"][0];
    for (auto& x : broken) x = 1e30;
    matrix.step(broken, false);
    for (size_t k = 0; k < about["gradients"].size(); ++k) matrix.step(about["gradients"][k]);
    CHECK(matrix.weight_error(about["weights"].back()) < 1e-5);
    CHECK(matrix.momentum_error(about["momentum"]) < 1e-5);
  }
}

}  // namespace muon_test

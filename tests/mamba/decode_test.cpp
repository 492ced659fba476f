// SPDX-License-Identifier: Apache-2.0
// A running sequence of Mamba, whose memory is its states, says what the forward of the whole sequence says.
#include <catch2/catch.hpp>

#include "core/trace/stepping.hpp"
#include "run.hpp"

using namespace mamba_test;

namespace {

constexpr int64_t batch = 2, length = 150;  // two chunks of prompt and more

struct Sequence : Run {
  Sequence(const std::string& options, const std::string& device_name, const std::string& model = "mamba")
      : Run(config_of("[model]\nplugin = '" + model + "'\nvocab_size = 64\nhidden_size = 32\nnum_hidden_layers = 3\n" +
                      options + "[device]\nplugin = '" + device_name + "'\nthreads = 2\n[train]\nmicro_batch = 2\n" +
                      "sequence_length = 150\nsteps = 1\n"),
            Use::generate),
        tokens(static_cast<size_t>(batch * length)) {
    uint32_t x = 1;
    for (int32_t& token : tokens) token = static_cast<int32_t>((x = x * 1664525 + 1013904223) >> 26);
    executor.upload(plan.field("tokens"), tokens.data());
    executor.run("logits");
    expected = read(plan.logits);
  }
  void run(const char* program, int64_t t, int64_t n) {
    std::vector<int32_t> next;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t k = 0; k < n; ++k) next.push_back(tokens[static_cast<size_t>(b * length + t + k)]);
    executor.upload(plan.field("tokens"), 0, next.data(), next.size() * sizeof(int32_t));
    int64_t counters[ENG_C_COUNT] = {};
    counters[ENG_C_POSITION] = t;
    executor.upload(plan.counters, counters);
    executor.run(program);
  }
  // Over all positions behind `chunks` of prompt, the largest error as a part of the largest logit.
  double error(int64_t chunks) {
    executor.run("reset");
    for (int64_t k = 0; k < chunks; ++k) run("prefill", k * eng::prefill, eng::prefill);
    double difference = 0, size = 0;
    for (int64_t t = chunks * eng::prefill; t < length; ++t) {
      run("decode", t, 1);
      const std::vector<float> ours = read(plan.next_logits);
      const int64_t v = plan.logits.desc.dims[2];
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t k = 0; k < v; ++k) {
          const double theirs = expected[static_cast<size_t>((b * length + t) * v + k)];
          const double d = std::abs(ours[static_cast<size_t>(b * v + k)] - theirs);
          difference = d <= difference ? difference : d;  // a NaN stays
          size = std::max(size, std::abs(theirs));
        }
    }
    return difference / size;
  }
  std::vector<int32_t> tokens;
  std::vector<float> expected;
};

}  // namespace

TEST_CASE("logits of Mamba one position at a time are those of the whole forward") {
  const std::string device = GENERATE("cpu", "reference");
  for (const char* options : {"", "state_size = 8\nconv_kernel = 3\nexpand = 1.5\n",
                              "use_bias = true\nconv_kernel = 2\n", "use_conv_bias = false\n"}) {
    INFO(device << " " << options);
    Sequence sequence(options, device);
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error(2) < 1e-5);  // the prompt read in pieces
    uint64_t cache = 0;
    for (const eng::Buffer& buffer : sequence.plan.buffers)
      if (buffer.line == eng::Line::cache) cache += buffer.bytes;
    const int64_t taps = sequence.config.section("model").integer("conv_kernel"),
                  states = sequence.config.section("model").integer("state_size"),
                  channels = std::string(options).find("1.5") == std::string::npos ? 64 : 48;
    CHECK(cache == static_cast<uint64_t>(3 * batch * channels * (states + taps - 1) * 4));  // whatever the length
  }
}

TEST_CASE("logits of Mamba-2 one position at a time are those of the whole forward") {
  const std::string device = GENERATE("cpu", "reference");
  for (const char* options :
       {"num_heads = 4\nhead_dim = 16\nstate_size = 8\nn_groups = 2\n",
        "num_heads = 3\nhead_dim = 32\nexpand = 3\nstate_size = 8\nn_groups = 1\nuse_bias = true\nconv_kernel = 2\n",
        "num_heads = 8\nhead_dim = 8\nstate_size = 8\nn_groups = 8\ntime_step_limit = [0.01, 0.5]\n"}) {
    INFO(device << " " << options);
    Sequence sequence(options, device, "mamba2");
    CHECK(sequence.error(0) < 1e-5);
    CHECK(sequence.error(2) < 1e-5);  // the prompt read in pieces
    uint64_t cache = 0;
    for (const eng::Buffer& buffer : sequence.plan.buffers)
      if (buffer.line == eng::Line::cache) cache += buffer.bytes;
    const eng::Section& model = sequence.config.section("model");
    const int64_t taps = model.integer("conv_kernel"), channels = 32 * model.integer("expand"),
                  convolved = channels + 16 * model.integer("n_groups");
    CHECK(cache == static_cast<uint64_t>(3 * batch * (channels * 8 + convolved * (taps - 1)) * 4));
  }
}

TEST_CASE("a state of Mamba that is not set back is seen in the logits") {
  Sequence sequence("", "cpu");
  CHECK(sequence.error(0) < 1e-5);
  double difference = 0, size = 0;  // the first position again, without a reset
  sequence.run("decode", 0, 1);
  const std::vector<float> ours = sequence.read(sequence.plan.next_logits);
  for (size_t k = 0; k < 64; ++k) {
    difference = std::max<double>(difference, std::abs(ours[k] - sequence.expected[k]));
    size = std::max<double>(size, std::abs(sequence.expected[k]));
  }
  CHECK(difference / size > 1e-3);
}

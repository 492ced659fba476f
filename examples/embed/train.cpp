// SPDX-License-Identifier: Apache-2.0
// A training loop in C++17: the engine steps on batches of this program, and its weights are read where they lie.
//
//     c++ -std=c++17 train.cpp $(pkg-config --cflags --libs engine-embed) -o train && ./train ../installed.toml
#include <cstdint>
#include <cstdio>
#include <engine/embed.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: train CONFIG [section.key=value ...]\n");
    return 2;
  }
  engine::Options options(argv[1]);
  for (int k = 2; k < argc; ++k) options.set(argv[k]);
  options.flags = ENG_SESSION_NO_FILES;
  engine::Session run(options);
  run.start();
  const eng_session_info info = run.info();

  // In place: no byte is copied, and each step shows through it.
  const engine::Tensor weight = run.take("model.norm.weight");

  // A batch is (rows, length); with one column more, the last one is only a label. Here each row counts bytes up.
  const std::vector<std::int64_t> shape = {info.rows, info.length + 1};
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape[0] * shape[1]));
  for (std::int64_t k = 0; k < info.steps; ++k) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      tokens[i] = static_cast<std::int32_t>((k * 31 + at / shape[1] * 7 + at % shape[1]) % info.vocabulary);
    }
    const auto step = run.step({{"tokens", tokens.data(), shape}});
    if (!step) break;
    std::printf("step %d loss %.4f norm weight[0] %.6f\n", static_cast<int>(step->step), step->loss,
                static_cast<double>(*weight.data<const float>()));
  }
  if (info.held_out) std::printf("held-out loss %.4f\n", run.evaluate({}, 4).loss);
  run.close();
  std::printf("after close: %.6f\n", static_cast<double>(*weight.data<const float>()));  // the tensor keeps its memory
  return 0;
} catch (const engine::Error& error) {
  std::fprintf(stderr, "status %d: %s\n", static_cast<int>(error.status), error.what());
  return 1;
}

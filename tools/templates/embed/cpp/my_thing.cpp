// SPDX-License-Identifier: Apache-2.0
// A program with the engine inside: it trains step by step, looks at a weight where it lies, and evaluates a batch of
// its own. The engine prints nothing and installs no signal handlers; what goes wrong arrives as an exception.
#include <cstdint>
#include <cstdio>
#include <engine/embed.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: my_thing CONFIG [section.key=value ...]\n");
    return 2;
  }
  engine::Options options(argv[1]);
  for (int k = 2; k < argc; ++k) options.set(argv[k]);
  options.flags = ENG_SESSION_NO_FILES;  // without it: a run directory with checkpoints, as of `engine run`
  engine::Session run(options);
  run.start();  // plans, and takes the memory

  // In place: no byte is copied, and each step shows through it. Read it between steps.
  const engine::Tensor weight = run.take("model.norm.weight");

  // On the data of the configuration. step() also takes batches, as evaluate() does below.
  while (const auto step = run.step())
    std::printf("step %d loss %.4f weight[0] %.6f\n", static_cast<int>(step->step), step->loss,
                static_cast<double>(*weight.data<const float>()));

  // A batch is (rows, length) ids; here each row counts upwards. Without labels, that of an id is the id after it.
  const eng_session_info info = run.info();
  const std::vector<std::int64_t> shape = {info.micro_rows, info.length};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(shape[0] * shape[1]));
  for (std::size_t k = 0; k < ids.size(); ++k)
    ids[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(k) % info.vocabulary);
  const eng_eval_result eval = run.evaluate({{"tokens", ids.data(), shape}});
  std::printf("loss of numbers in order: %.4f\n", eval.loss);

  run.close();  // the destructor closes too, but cannot tell what went wrong
  return 0;
} catch (const engine::Error& error) {
  std::fprintf(stderr, "status %d: %s\n", static_cast<int>(error.status), error.what());
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// The gradient that a job gets is that of a training step on the same window, bit for bit.
#include <catch2/catch.hpp>

#include <cstdint>
#include <sstream>

#include "support.hpp"

using namespace embed;

namespace {

// FNV-1a, as tests/job/fixture_job.c makes it.
uint64_t hash(uint64_t h, const void* data, uint64_t size) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (uint64_t k = 0; k < size; ++k) h = (h ^ at[k]) * 0x100000001b3u;
  return h;
}

// The fixture's hash of the gradient of the first window.
std::string analysed(const Folder& folder, const std::string& words) {
  const std::string command = std::string(ENGINE_COMMAND) + " --plugin-path " FIXTURE_JOB_DIR " analyse " +
                              (folder / "config.toml").string() + " --job fixture job.turns=1 job.windows=1 --out " +
                              (folder / "analysis").string() + " " + words + " 2> " + (folder / "err").string();
  if (std::system(command.c_str()) != 0) throw std::runtime_error(read(folder / "err"));
  std::istringstream in(read(folder / "analysis" / "result.txt"));
  for (std::string name, number; in >> name >> number;)
    if (name == "gradient") return number;
  return "";
}

}  // namespace

TEST_CASE("embed: the gradient of a job is that of a step of training", "[embed]") {
  const Folder folder;
  std::ofstream(folder / "text.txt") << "Two windows of sixteen bytes: one of them is held out.";
  const std::vector<std::string> words = {"data.validation=0.5", "train.micro_batch=1", "train.accumulate=1",
                                          "train.sequence_length=24", "train.grad_clip=0"};
  engine::Options options = folder.options("", words);
  options.flags |= ENG_SESSION_GRADIENTS;
  engine::Session run(options);
  REQUIRE(run.step());
  uint64_t trained = 0xcbf29ce484222325u;
  for (const eng_tensor_info& t : run.tensors()) {
    if (t.role != std::string("gradient")) continue;
    const engine::Tensor g = run.take(t.name, "gradient");
    uint64_t n = 4;
    for (const int64_t d : g.shape()) n *= static_cast<uint64_t>(d);
    trained = hash(trained, g.data<const char>(), n);
  }
  std::ostringstream text;
  text << std::hex << trained;
  std::string all;
  for (const std::string& word : words) all += word + " ";
  CHECK(analysed(folder, all) == std::string(16 - text.str().size(), '0') + text.str());
}

// SPDX-License-Identifier: Apache-2.0
// [job] groups: tensors that are measured one group after the other, and the results of all of them together.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "analysis.hpp"

namespace curvature_groups {

using namespace curvature_analysis;

TEST_CASE("groups of tensors have the Fisher matrix, classes and responses of all at once", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args fisher = {"job.method='fisher'"};
  const auto in = [&](const char* groups, const char* more = "job.seed=1") {
    return analysed(scratch, std::string("groups ") + groups + more,
                    {fisher[0], std::string("job.groups=") + groups, more});
  };
  const Json whole = in("1");
  CHECK(in("2") == whole);
  CHECK(in("7") == whole);
  CHECK(in("3", "offload.optimizer=host") == whole);
  CHECK(in("3", "job.seed=2") != whole);
  for (const char* by_row : {"job.partition='row'", "job.max_rows=0"}) CHECK(in("3", by_row) == in("1", by_row));
}

TEST_CASE("directions do not depend on the groups of tensors, so neither does what a group measures alone",
          "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const Json whole = analysed(scratch, "whole"), two = analysed(scratch, "two", {"job.groups=2"}),
             three = analysed(scratch, "three", {"job.groups=3"});
  CHECK(whole["step"] == two["step"]);
  CHECK(two["hessian_data_size"] == whole["hessian_data_size"]);
  // Another estimator of the same: directions are 0 in other groups, so other entries of the Hessian are left out.
  CHECK(two["tensors"] != whole["tensors"]);
  CHECK(two["tensors"] != three["tensors"]);
  size_t apart = 0;
  for (size_t k = 0; k < whole["tensors"].size(); ++k) {
    const Json &a = whole["tensors"][k], &b = two["tensors"][k];
    CHECK(a["name"] == b["name"]);
    CHECK(a["gradient_norm"] == b["gradient_norm"]);
    apart += a["hessian_low"] > b["hessian_high"] || b["hessian_low"] > a["hessian_high"];
  }
  CHECK(apart <= 1);
  // A group alone, as train.freeze makes it, has another step: that of its own tensors. With one step it is the group.
  CHECK(analysed(scratch, "two again", {"job.groups=2"}) == two);
  CHECK(analysed(scratch, "threads", {"job.groups=2", "device.threads=2", "recompute.policy=full"}) == two);
}

TEST_CASE("an analysis in groups that is killed and resumed has the results of one that is not", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const Json whole = analysed(scratch, "whole", {"job.groups=3"});
  for (const std::string part : {"1", "3"}) {
    INFO(part);
    const std::string out = "killed in " + part;
    Child child(scratch, words("config.toml", out, {"job.groups=3"}));
    const fs::path saves = scratch / out / "parts" / part / "checkpoints";
    const auto far = [&] {
      const std::vector<std::string> all = fs::exists(saves) ? names(saves) : std::vector<std::string>();
      return std::any_of(all.begin(), all.end(),
                         [](const std::string& s) { return s.starts_with("step-") && s >= "step-00000002"; });
    };
    while (child.running() && !far()) usleep(1000);
    child.signal(SIGKILL);
    CHECK(child.wait().killed);
    CHECK_FALSE(fs::exists(scratch / out / "results.json"));
    CHECK(analysed(scratch, out, {}, out) == whole);
  }
  // A part that is done is not done again; one whose file is damaged is named.
  fs::remove(scratch / "whole" / "results.json");
  const fs::path second = scratch / "whole" / "parts" / "2" / "measures";
  const auto before = fs::last_write_time(second);
  CHECK(analysed(scratch, "whole", {}, "whole") == whole);
  CHECK(fs::last_write_time(second) == before);
  std::string bytes = read(second);
  bytes[bytes.size() / 2] ^= 1;
  scratch.write("whole/parts/2/measures", bytes);
  const Result damaged = engine(scratch, {"analyse", "whole"});
  CHECK(damaged.exit == 4);
  CHECK(has(damaged.err, "what a part of the analysis has written is damaged"));
  const Result part = engine(scratch, {"analyse", "whole/parts/2"});
  CHECK(part.exit == 2);
  CHECK(has(part.err, "is a part of the analysis"));
}

TEST_CASE("two ranks with zero3 measure groups of tensors as two ranks without a strategy do", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto with = [&](const char* strategy, const char* groups) {
    return analysed(scratch, std::string(strategy) + groups,
                    {"--ranks", "2", "--oversubscribe", "device.threads=1", std::string("zero.plugin=") + strategy,
                     std::string("job.groups=") + groups, "job.method='fisher'"});
  };
  const Json plain = with("none", "1");
  CHECK(with("none", "2") == plain);
  CHECK(with("zero3", "2") == plain);
}

#ifndef SANITIZED
TEST_CASE("an analysis in groups takes the memory of its largest part, as planned", "[curvature][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("opt.toml",
                "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 128\nnum_hidden_layers = 8\n"
                "num_attention_heads = 4\nffn_dim = 512\nmax_position_embeddings = 128\ndropout = 0.0\n[data]\npaths = "
                "['text.txt']\nvalidation = 0.2\n"
                "[train]\nsequence_length = 32\nsteps = 1\n[device]\nthreads = 1\n");
  double most = 0;
  for (const char* groups : {"1", "4"}) {
    const std::string out = std::string("out ") + groups;
    const Result done = engine(scratch, words("opt.toml", out, {std::string("job.groups=") + groups}));
    INFO(done.err);
    REQUIRE(done.exit == 0);
    const Json memory = results(scratch / out)["memory"];
    const double planned = memory["planned"]["host_peak_bytes"], taken = static_cast<double>(done.peak_bytes());
    INFO(out << ": planned " << planned << ", measured " << taken);
    CHECK(std::abs(taken - planned) < std::max(planned / 100, 1048576.0));
    CHECK(memory["measured"]["device_peak_bytes"] == memory["planned"]["device_peak_bytes"]);
    CHECK((most == 0 || planned < 0.75 * most));
    most = planned;
  }
}
#endif

TEST_CASE("the plan chooses groups of tensors that fit, and shows each", "[curvature]") {
  Scratch scratch;
  scratch.config();
  scratch.write(
      "opt.toml",
      "[model]\nplugin = 'opt'\npreset = '6.7b'\ndropout = 0.0\n[data]\npaths = ['text.txt']\nvalidation = 0.2\n"
      "[train]\nsequence_length = 512\nsteps = 1\n[recompute]\npolicy = 'full'\n[job]\nwindows = 4\n");
  const auto plan = [&](const Args& more) {
    Args all = {"plan", "opt.toml", "--job", "curvature", "device.describe=a800-80g", "host.memory=160GB"};
    all.insert(all.end(), more.begin(), more.end());
    return engine(scratch, all);
  };
  const Result chosen = plan({"job.groups=0"});
  INFO(chosen.out << chosen.err);
  CHECK(chosen.exit == 0);
  CHECK(has(chosen.out, "parts: 3 groups of tensors, one after the other"));
  for (const char* part : {"survey", "group 1 of 3", "group 3 of 3", "join"}) CHECK(has(chosen.out, part));
  CHECK(has(chosen.out, "of 79.1 GiB: fits"));
  const Result few = plan({"job.groups=2"});
  CHECK(few.exit == 5);
  CHECK(has(few.out, "group 2 of 2"));
  CHECK(has(plan({"job.groups=4000"}).err, "job.groups = 4000: the model has"));
}

}  // namespace curvature_groups

// SPDX-License-Identifier: Apache-2.0
// Sums and gathers in fewer bits: a run goes on bit for bit with what its sums left out, and what is lost in the loss.
#include <cmath>

#include "../cli/harness.hpp"

using namespace cli;

namespace {

struct Compressed : Scratch {
  Compressed() { config(); }
  Result run(Args args, const Args& more = {}) const {
    args.insert(args.end(), more.begin(), more.end());
    Result result = engine(*this, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return result;
  }
  // The mean loss of the last steps.
  double last_losses(const std::string& out, size_t n) const {
    const std::vector<double> all = column(*this / out, "loss");
    REQUIRE(all.size() > n);
    double sum = 0;
    for (size_t k = all.size() - n; k < all.size(); ++k) sum += all[k];
    return sum / static_cast<double>(n);
  }
};

}  // namespace

TEST_CASE("a run with narrow sums and gathers goes on bit for bit", "[ranks][.slow]") {
  const Compressed place;
  const Args narrow = {"zero.sum=int8",      "zero.gather=int8",   "zero.bucket=64KiB",
                       "train.accumulate=2", "checkpoint.every=2", "checkpoint.keep=0"};
  for (const auto& [out, ranks, plugin] :
       {std::tuple{"flat", "2", Args{"zero.plugin=zero3"}},
        {"groups", "4", Args{"zero.plugin=hpz", "zero.group=2"}},
        {"divided", "4", Args{"zero.plugin=zero3", "parallel.tensor=2"}},
        {"stages", "4", Args{"zero.plugin=zero3", "parallel.pipeline=2", "model.tie_word_embeddings=true"}}}) {
    INFO(out);
    Args more = plugin;
    more.insert(more.end(), narrow.begin(), narrow.end());
    const std::string once = std::string(out) + "-once";
    for (const std::string& to : {std::string(out), once}) {
      const Result result = place.run({"run", "config.toml", "--out", to, "--ranks", ranks, "train.steps=4"}, more);
      CHECK(has(result.err, " is lossy"));
    }
    CHECK(engine(place, {"ckpt", "diff", out, once}).exit == 0);  // equal runs
    place.run({"run", out, "--resume", "2", "--ranks", ranks});
    CHECK(engine(place, {"ckpt", "diff", out, once}).exit == 0);
    // The checkpoint has what its sums left out.
    CHECK(has(read(place / out / "checkpoints/step-00000002/optim-00001.safetensors"), "\"zero.residual."));
  }
  // Another strategy has the same sums; other groups or ranks begin with nothing left out.
  place.run({"run", "flat", "--resume", "2", "--ranks", "2", "zero.plugin=mics", "zero.group=1"});
  CHECK(engine(place, {"ckpt", "verify", "flat"}).exit == 0);
  place.run({"run", "groups", "--resume", "2", "--ranks", "4", "zero.group=1"});
  place.run({"run", "groups", "--resume", "2", "train.micro_batch=8"});
  place.run({"run", "divided", "--resume", "2", "--ranks", "4", "parallel.tensor=1"});
  place.run({"run", "stages", "--resume", "2", "--ranks", "2", "parallel.pipeline=1"});
}

TEST_CASE("narrow sums and gathers train as exact ones do, within bounds", "[ranks][.slow]") {
  const Compressed place;
  const auto train = [&](const std::string& out, const Args& more) {
    place.run({"run", "config.toml", "--out", out, "--ranks", "2", "train.steps=80", "zero.plugin=zero3",
               "checkpoint.every=80"},
              more);
    return place.last_losses(out, 10);
  };
  const double exact = train("exact", {});
  for (const auto& [out, more, bound] : {std::tuple{"bf16", Args{"zero.sum=bf16"}, 0.002},
                                         {"int8", Args{"zero.sum=int8"}, 0.005},
                                         {"gathered", Args{"zero.gather=int8"}, 0.01},
                                         {"both", Args{"zero.sum=int8", "zero.gather=int8"}, 0.01}}) {
    const double narrow = train(out, more);
    INFO(out << ": " << narrow << ", exact: " << exact);
    CHECK(narrow != exact);
    CHECK(std::abs(narrow / exact - 1) < bound);
  }
  // It has learned something.
  CHECK(exact < column(place / "exact", "loss")[0] - 1);
}

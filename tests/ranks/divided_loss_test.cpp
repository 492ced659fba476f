// SPDX-License-Identifier: Apache-2.0
// Losses of whole sequences, with a reference model, on ranks that divide sequences or layers: the run of one rank.
#include <cmath>

#include "../cli/harness.hpp"

namespace divided_loss_test {

using namespace cli;

namespace {

const std::string config =
    "[model]\nplugin = 'llama'\nvocab_size = 512\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"
    "num_attention_heads = 4\nnum_key_value_heads = 2\n[data]\nplugin = 'pairs'\npaths = ['pairs.jsonl']\n"
    "tokenizer = 'bytes'\n[train]\nsteps = 4\nsequence_length = 64\n[optimizer]\nplugin = 'sgd'\nlearning_rate = 0.5\n"
    "[device]\nthreads = 1\n[loss]\nplugin = 'preference'\n";

std::string pairs() {
  std::string out;
  for (int k = 0; k < 24; ++k) {
    const std::string n = std::to_string(k);
    out += "{\"prompt\": \"question " + n + " of many\", \"chosen\": \" the answer is " + std::to_string(k * 7) +
           "\", \"rejected\": \" no idea about " + n + "\"}\n";
  }
  return out;
}

void train(const Scratch& scratch, const std::string& out, uint32_t ranks, Args more) {
  more.insert(more.begin(), {"run", "config.toml", "--out", out});
  if (ranks > 1) more.insert(more.end(), {"--ranks", std::to_string(ranks)});
  const Result result = engine(scratch, more, {300, 0});
  INFO(out << "\n" << result.err);
  REQUIRE(result.exit == 0);
}

}  // namespace

TEST_CASE("pairs of answers on ranks that divide sequences or layers train what one rank trains", "[ranks][.slow]") {
  Scratch scratch;
  scratch.write("config.toml", config);
  scratch.write("pairs.jsonl", pairs());
  const Args dpo = {"reference.from=start"}, simpo = {"loss.kind=simpo"},
             base = {"reference.from=base",
                     "transforms=[{plugin='lora', rank=4, targets=['all-linear'], dropout=0.1}]"};
  const auto with = [](Args kind, const Args& more) {
    kind.insert(kind.end(), more.begin(), more.end());
    return kind;
  };
  for (const auto& [kind, words] : {std::pair<std::string, Args>{"dpo", dpo}, {"simpo", simpo}, {"base", base}}) {
    train(scratch, kind, 1, with(words, {"train.micro_batch=4"}));
    const std::vector<std::pair<uint32_t, Args>> divided = {
        {2, {"parallel.context=2"}},
        {2, {"parallel.tensor=2"}},
        {2, {"parallel.tensor=2", "parallel.sequence=true"}},
        {4, {"parallel.tensor=2", "parallel.context=2", "zero.plugin=zero3", "recompute.policy=full"}}};
    for (size_t k = 0; k < divided.size(); ++k) {
      const std::string name = kind + "-" + std::to_string(k);
      train(scratch, name, divided[k].first, with(with(words, {"train.micro_batch=4"}), divided[k].second));
      for (const char* key : {"loss", "grad_norm"}) {
        const std::vector<double> mine = column(scratch / name, key), whole = column(scratch / kind, key);
        REQUIRE(mine.size() == whole.size());
        REQUIRE(mine.size() == 4);
        CHECK(whole[0] != whole[3]);
        for (size_t s = 0; s < mine.size(); ++s) {
          INFO(name << " " << key << " " << s << ": " << mine[s] << ", " << whole[s]);
          CHECK(std::abs(mine[s] - whole[s]) < 2e-5 * std::abs(whole[s]));
        }
      }
    }
  }
}

}  // namespace divided_loss_test

// SPDX-License-Identifier: Apache-2.0
// The meaning of DeepSpeed's keys, where it is not what they seem to mean.
#include <fmt/format.h>

#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

struct Sizes {
  int64_t micro, accumulate, ranks;
  bool operator==(const Sizes&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << s.micro << " x " << s.accumulate << " x " << s.ranks;
}

Sizes batch(const std::string& keys, int ranks) {
  const Converted made =
      converted("{" + keys + "}", "--preset tiny" + (ranks ? " --num_gpus " + std::to_string(ranks) : ""));
  const Section train = built_config(made.text).section("train");
  // With global_batch the engine divides by the ranks of the run.
  const int64_t micro = train.integer("micro_batch");
  if (train.has("global_batch"))
    return {micro, train.integer("global_batch") / micro / std::max(ranks, 1), std::max<int64_t>(made.ranks, 1)};
  return {micro, train.integer("accumulate"), made.ranks};
}

const char* const train = "\"train_batch_size\": ";
const char* const micro = "\"train_micro_batch_size_per_gpu\": ";
const char* const steps = "\"gradient_accumulation_steps\": ";
std::string keys(int whole, int each, int parts) {
  std::string out;
  const auto add = [&](const char* key, int value) {
    if (value) out += (out.empty() ? "" : ", ") + (key + std::to_string(value));
  };
  add(train, whole), add(micro, each), add(steps, parts);
  return out;
}

std::string scheduled(const std::string& type, const std::string& params, const std::string& rate = "2e-5") {
  return R"({"train_batch_size": 8, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": )" +
         rate + R"(}}, "scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
}

}  // namespace

TEST_CASE("convert: two batch sizes give the third, as DeepSpeed derives it") {
  CHECK(batch(keys(32, 2, 4), 4) == Sizes{2, 4, 4});
  CHECK(batch(keys(32, 2, 4), 0) == Sizes{2, 4, 4});  // the ranks follow
  CHECK(batch(keys(32, 2, 0), 4) == Sizes{2, 4, 4});
  CHECK(batch(keys(32, 0, 4), 4) == Sizes{2, 4, 4});
  CHECK(batch(keys(0, 2, 4), 4) == Sizes{2, 4, 4});
  CHECK(batch(keys(32, 0, 0), 4) == Sizes{8, 1, 4});
  CHECK(batch(keys(32, 0, 4), 0) == Sizes{1, 32, 1});  // global_batch: a step is the same with any ranks
  CHECK(batch(keys(0, 2, 0), 4) == Sizes{2, 1, 4});
  CHECK(batch(keys(32, 2, 0), 0) == Sizes{2, 16, 1});  // global_batch: right for any ranks
  CHECK(batch(R"("train_batch_size": 3.2e1, "train_micro_batch_size_per_gpu": 2)", 4) == Sizes{2, 4, 4});
  CHECK_THAT(notes_of(converted("{" + keys(32, 0, 0) + "}")), Contains("the number of ranks is not known"));
}

TEST_CASE("convert: batch sizes that DeepSpeed refuses") {
  const auto told = [](const std::string& text, int ranks, const char* part) {
    CHECK_THAT(refusal("{" + text + "}", ranks ? "--num_gpus " + std::to_string(ranks) : ""), Contains(part));
  };
  told(keys(32, 2, 4), 2, "2 (micro-batch) x 4 (accumulation) x 2 ranks (--num_gpus) = 16, not train_batch_size = 32");
  told(keys(30, 4, 2), 0, "train_batch_size = 30 is not a multiple of 4 (micro-batch) x 2 (accumulation)");
  told(keys(30, 4, 0), 2, "train_batch_size = 30 needs 3 micro-batches of 4 on 2 ranks (--num_gpus), which make 24");
  told(keys(30, 0, 4), 2, "train_batch_size = 30 is not a multiple of 4 (accumulation) x 2 ranks");
  told(keys(31, 0, 0), 2, "train_batch_size = 31 is not a multiple of 2 ranks");
  told(keys(0, 0, 4), 2, "neither `train_batch_size` nor `train_micro_batch_size_per_gpu` is given");
  told(R"("zero_optimization": {"stage": 2})", 2, "DeepSpeed refuses this too");
  told(R"("train_batch_size": "32")", 2, "`train_batch_size` must be a whole number of at least 1, not \"32\"");
  told(R"("train_batch_size": 0)", 2, "not 0");
  told(R"("train_batch_size": 1.5)", 2, "not 1.5");
  told(R"("train_batch_size": true)", 2, "not true");
  told(R"("train_batch_size": 18446744073709551615)", 2, "not a whole number of 2^63 or more");
}

TEST_CASE("convert: ranks that share samples do not count") {
  const Converted made = converted(R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
                                       "gradient_accumulation_steps": 2, "sequence_parallel_size": 2})",
                                   "--num_gpus 8");
  CHECK(made.ranks == 4);
  CHECK_THAT(notes_of(made),
             Contains("`sequence_parallel_size` = 2: no equivalent") && Contains("parallel.context = 2"));
  CHECK_THAT(refusal(R"({"train_batch_size": 16, "sequence_parallel_size": 3})", "--num_gpus 8"),
             Contains("does not divide the ranks"));
}

TEST_CASE("convert: keys of stage 3 under stage 2 are not read there, and not converted") {
  const Converted made = converted(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2,
    "stage3_max_live_parameters": 1e9, "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1e9,
    "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})",
                                   "--preset tiny");
  INFO(made.text << notes_of(made));
  CHECK_FALSE(built_config(made.text).section("zero").has("live_limit"));
  CHECK_THAT(made.text, !Contains("live_limit"));
  const std::string notes = notes_of(made);
  CHECK_THAT(notes, Contains("stage 2 does not read stage3_max_live_parameters, stage3_prefetch_bucket_size, "
                             "sub_group_size; not converted"));
  CHECK_THAT(
      notes,
      Contains("`zero_optimization.offload_param` to cpu: DeepSpeed reads it under stage 3 alone, this is 2; not "
               "converted"));
  CHECK_THAT(notes,
             Contains("`zero_optimization.offload_optimizer` to nvme: under stage 2 DeepSpeed takes nvme for cpu"));
  CHECK(built_config(made.text).section("offload").string("optimizer") == "host");
  CHECK(built_config(made.text).section("offload").string("parameters") == "none");
  CHECK_THAT(notes, !Contains("nvme_path"));
}

TEST_CASE("convert: the part of the optimizer that is offloaded is offload.ratio under stage 3") {
  const auto with = [](const char* stage, const char* ratio) {
    return fmt::format(R"({{"train_batch_size": 8, "zero_optimization": {{"stage": {},
      "offload_optimizer": {{"device": "cpu", "ratio": {}}}}}}})",
                       stage, ratio);
  };
  const Converted made = converted(with("3", "0.3"), "--preset tiny");
  INFO(made.text << notes_of(made));
  CHECK(built_config(made.text).section("offload").number("ratio") == 0.3);
  CHECK_THAT(refusal(with("3", "1.5")), Contains("offload_optimizer.ratio"));
  CHECK_THAT(refusal(with("3", "\"half\"")), Contains("offload_optimizer.ratio"));
  const Converted two = converted(with("2", "0.3"), "--preset tiny");
  CHECK_THAT(notes_of(two), Contains("`zero_optimization.offload_optimizer.ratio`: DeepSpeed reads it under stage 3"));
  CHECK(built_config(two.text).section("offload").number("ratio") == 1.0);
}

TEST_CASE("convert: super_offload is offload.update_early under stage 3") {
  const auto with = [](const char* stage, const char* on) {
    return converted(fmt::format(R"({{"train_batch_size": 8, "zero_optimization": {{"stage": {},
      "offload_optimizer": {{"device": "cpu", "super_offload": {}, "ratio": 0.9, "cpuadam_cores_perc": 0.9}}}}}})",
                                 stage, on),
                     "--preset tiny");
  };
  const auto early = [](const Converted& made) {
    return built_config(made.text).section("offload").boolean("update_early");
  };
  CHECK(early(with("3", "true")));
  CHECK_FALSE(early(with("3", "false")));
  const Converted two = with("2", "true");
  CHECK_FALSE(early(two));
  CHECK_THAT(notes_of(two), Contains("`zero_optimization.offload_optimizer.super_offload`: DeepSpeed reads it under "));
}

TEST_CASE("convert: states on nvme keep their folder and their requests") {
  const Converted made = converted(R"({"train_batch_size": 8, "aio": {"block_size": 262144, "queue_depth": 32,
    "single_submit": false}, "zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "/other"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "pin_memory": true}}})",
                                   "--preset tiny");
  INFO(made.text << notes_of(made));
  const eng::Config config = built_config(made.text);
  const eng::Section& offload = config.section("offload");
  CHECK(offload.string("optimizer") == "nvme");
  CHECK(offload.string("parameters") == "nvme");
  CHECK(offload.strings("nvme_paths") == std::vector<std::string>{"/nvme"});
  CHECK(offload.integer("nvme_block") == 262144);
  CHECK(offload.integer("nvme_depth") == 32);
  CHECK_THAT(notes_of(made), Contains("is another folder than that of the other states: not converted"));
  // Without a folder the line waits for one.
  const Converted none = converted(
      R"({"train_batch_size": 8, "aio": {"block_size": 1000}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}})",
      "--preset tiny");
  INFO(none.text << notes_of(none));
  CHECK(built_config(none.text).section("offload").string("optimizer") == "none");
  CHECK_THAT(none.text, Contains("# optimizer = \"nvme\""));
  CHECK_THAT(notes_of(none), Contains("set offload.nvme_paths as well"));
}

TEST_CASE("convert: values of zero_optimization that mean nothing") {
  const auto zero = [](const std::string& text) {
    return R"({"train_batch_size": 8, "zero_optimization": {)" + text + "}}";
  };
  for (const char* bad : {"4", "-1", "\"2\"", "1.5", "[1]"})
    CHECK_THAT(refusal(zero(std::string("\"stage\": ") + bad)),
               Contains("`zero_optimization.stage` must be 0, 1, 2 or 3"));
  CHECK_THAT(refusal(zero(R"("stage": 2, "offload_optimizer": {"device": "gpu"})")),
             Contains("must be \"none\", \"cpu\" or \"nvme\", not \"gpu\""));
  CHECK_THAT(refusal(zero(R"("stage": 2, "overlap_comm": 3)")),
             Contains("`zero_optimization.overlap_comm`: zero.overlap must be of type boolean"));
  // Offloading to nowhere is off, and without a device too.
  for (const char* none : {R"({"device": "none"})", R"({"pin_memory": true})"})
    CHECK_THAT(notes_of(converted(zero(std::string(R"("stage": 2, "offload_optimizer": )") + none))),
               !Contains("offloading") && Contains("off there and here: zero_optimization.offload_optimizer"));
  CHECK(built_config(converted(R"({"train_batch_size": 8, "zero_optimization": true})", "--preset tiny").text)
            .section("zero")
            .string("plugin") == "zero1");
  CHECK_THAT(refusal(zero(R"("stage": 2, "reduce_buket_size": 5)")),
             Contains("not understood: zero_optimization.reduce_buket_size (did you mean reduce_bucket_size?)"));
}

TEST_CASE("convert: defaults of DeepSpeed's schedulers") {
  const auto schedule = [](const std::string& type, const std::string& params) {
    return built_config(converted(scheduled(type, params), "--preset tiny").text).section("schedule");
  };
  const Section plain = schedule("WarmupLR", "");
  CHECK(plain.number("warmup_min_lr") == 0.0);
  CHECK(plain.number("warmup_max_lr") == 2e-5);  // the optimizer's
  CHECK(plain.integer("warmup_num_steps") == 1000);
  CHECK(plain.string("warmup_type") == "log");
  const Section decay = schedule("WarmupDecayLR", R"("total_num_steps": 1000, "warmup_type": "linear")");
  CHECK(decay.number("warmup_max_lr") == 0.001);  // not the optimizer's
  CHECK(decay.string("warmup_type") == "linear");
  const Converted made = converted(scheduled("WarmupDecayLR", R"("total_num_steps": 1000)"), "--preset tiny");
  CHECK_THAT(notes_of(made), Contains("WarmupDecayLR then rises to 0.001, not to the optimizer's 2e-05"));
  CHECK(built_config(made.text).section("train").integer("steps") == 1000);
  const Section cosine = schedule("WarmupCosineLR", R"("total_num_steps": 500, "warmup_num_steps": 10)");
  CHECK(cosine.number("cos_min_ratio") == 1e-4);
  CHECK(cosine.number("warmup_min_ratio") == 0.0);
  CHECK(schedule("WarmupLR", R"("warmup_max_lr": [0.001])").number("warmup_max_lr") == 0.001);
}

TEST_CASE("convert: the length that a decay needs") {
  const Converted missing = converted(scheduled("WarmupDecayLR", R"("warmup_num_steps": 10)"), "--preset tiny");
  CHECK_THAT(missing.text, Contains("# total_num_steps = ...") && Contains("# steps = 1000"));
  CHECK_THAT(notes_of(missing),
             Contains("`scheduler.params.total_num_steps` is missing: WarmupDecayLR needs the number of steps") &&
                 Contains("give --max_steps N in --args"));
  CHECK_NOTHROW(built_config(missing.text, {"schedule.total_num_steps=10"}));
  const Converted given =
      converted(scheduled("WarmupDecayLR", ""), "--preset tiny --max_steps 300 --learning_rate 2e-5");
  CHECK(built_config(given.text).section("schedule").integer("total_num_steps") == 300);
  // With "auto" Hugging Face counts the steps of the epochs, which are not known here.
  const Converted open = converted(scheduled("WarmupDecayLR", R"("total_num_steps": "auto")"), "--preset tiny");
  CHECK_THAT(open.text, Contains("# total_num_steps = "));
  CHECK_THAT(notes_of(open), Contains("set schedule.total_num_steps and train.steps"));
  CHECK_NOTHROW(built_config(open.text, {"schedule.total_num_steps=10"}));
  CHECK_THAT(refusal(scheduled("WarmupDecayLR", R"("total_num_steps": 0)")),
             Contains("`scheduler.params.total_num_steps`: schedule.total_num_steps must be at least 1"));
  const std::string cycle = scheduled("OneCycle", R"("cycle_min_lr": 0.001)");
  CHECK_THAT(refusal(cycle), Contains("`scheduler.type` = \"OneCycle\": there is no such schedule here") &&
                                 Contains("--ignore scheduler"));
  CHECK_THAT(converted(cycle, "--preset tiny", "ds.json", {"scheduler"}).text, !Contains("[schedule]"));
}

TEST_CASE("convert: activation checkpointing") {
  const auto made = [](const std::string& keys, const std::string& more = "") {
    return converted(R"({"train_batch_size": 8, "activation_checkpointing": {)" + keys + "}}", "--preset tiny " + more);
  };
  const Converted four = made(R"("partition_activations": true, "cpu_checkpointing": false, "number_checkpoints": 4)");
  CHECK(built_config(four.text).section("recompute").integer("blocks") == 4);
  CHECK_THAT(notes_of(four), Contains("DeepSpeed does nothing with it unless the model calls its checkpoint function"));
  CHECK_THAT(notes_of(four), Contains("`activation_checkpointing.partition_activations`: no effect on the numbers") &&
                                 Contains("data-parallel ranks have different ones, so there is nothing to divide") &&
                                 Contains("[recompute] and offload.activations save their memory"));
  for (const char* none : {"null", "false"}) {
    const Converted off = made(std::string("\"number_checkpoints\": ") + none);
    CHECK_FALSE(built_config(off.text).section("recompute").has("blocks"));
  }
  const Converted both = made(R"("number_checkpoints": 4)", "--gradient_checkpointing");
  CHECK(built_config(both.text).section("recompute").string("policy") == "full");
  CHECK_FALSE(built_config(both.text).section("recompute").has("blocks"));
}

TEST_CASE("convert: number formats") {
  CHECK_THAT(refusal(R"({"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}})"),
             Contains("`fp16.enabled` and `bf16.enabled` are both on"));
  CHECK_THAT(refusal(R"({"train_batch_size": 8, "fp16": {"enabled": "maybe"}})"),
             Contains("`fp16.enabled` must be true or false, not \"maybe\""));
  const Converted off = converted(R"({"train_batch_size": 8, "fp16": {"enabled": false, "loss_scale": 0}})");
  CHECK_THAT(off.text, !Contains("[precision]"));
  CHECK_THAT(notes_of(off), !Contains("loss"));
}

TEST_CASE("convert: values out of range are refused with their place") {
  CHECK_THAT(refusal(scheduled("WarmupLR", "", "-1")),
             Contains("`optimizer.params.lr`: optimizer.learning_rate must be above 0, not number -1.0") ||
                 Contains("`optimizer.params.lr`: optimizer.learning_rate must be above 0, not integer -1"));
  const std::string both = refusal(R"({"train_batch_size": 0, "gradient_clipping": "much"})");
  CHECK_THAT(both, Contains("`train_batch_size` must be") &&
                       Contains("\nerror: `gradient_clipping`: train.grad_clip must be"));
}

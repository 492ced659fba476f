// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's files as its documents and Hugging Face's show them.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

const char* const cifar = R"({
  "train_batch_size": 16,
  "steps_per_print": 2000,
  "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, "warmup_num_steps": 1000}},
  "gradient_clipping": 1.0,
  "prescale_gradients": false,
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1,
           "initial_scale_power": 15},
  "wall_clock_breakdown": false,
  "zero_optimization": {"stage": 0, "allgather_partitions": true, "reduce_scatter": true,
    "allgather_bucket_size": 50000000, "reduce_bucket_size": 50000000, "overlap_comm": true,
    "contiguous_gradients": true, "cpu_offload": false}
})";

// The file of Hugging Face's integration, by stage.
std::string integrated(int stage, const std::string& zero) {
  return R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR",
                "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": )" +
         std::to_string(stage) + zero + R"(},
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "steps_per_print": 2000,
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "wall_clock_breakdown": false
})";
}
const std::string zero2 = R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "allgather_partitions": true,
  "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true, "reduce_bucket_size": 2e8,
  "contiguous_gradients": true)";
const std::string zero3 = R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true},
  "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
  "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
  "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
  "stage3_gather_16bit_weights_on_model_save": true)";

}  // namespace

TEST_CASE("convert: the file of DeepSpeed's tutorial") {
  const Converted made = converted(cifar, "deepspeed --num_gpus=4 train.py --deepspeed --preset tiny");
  INFO(made.text);
  const Config config = built_config(made.text);
  CHECK(made.ranks == 4);
  CHECK_THAT(made.text, Contains("engine check FILE --ranks 4; engine run FILE --ranks 4"));
  const Section &train = config.section("train"), &optimizer = config.section("optimizer"),
                &schedule = config.section("schedule");
  CHECK(train.integer("micro_batch") == 4);
  CHECK(train.integer("accumulate") == 1);
  CHECK(train.number("grad_clip") == 1.0);
  CHECK(optimizer.string("plugin") == "adamw");
  CHECK(optimizer.number("learning_rate") == 0.001);
  CHECK(optimizer.number("beta1") == 0.8);
  CHECK(optimizer.number("beta2") == 0.999);
  CHECK(optimizer.number("weight_decay") == 3e-7);
  CHECK(schedule.string("compatible") == "deepspeed");
  CHECK(schedule.string("kind") == "WarmupLR");
  CHECK(schedule.string("warmup_type") == "log");
  CHECK(schedule.integer("warmup_num_steps") == 1000);
  CHECK(config.section("log").integer("every") == 2000);
  CHECK(config.section("zero").string("plugin") == "none");
  CHECK(config.section("zero").integer("bucket") == 200000000);  // elements there
  CHECK(config.section("precision").string("plugin") == "fp16");
  CHECK(config.section("precision").number("loss_scale") == 0);
  CHECK(config.section("precision").integer("initial_scale_power") == 15);
  CHECK(config.section("precision").integer("loss_scale_window") == 500);
  CHECK(config.section("precision").integer("hysteresis") == 2);
  CHECK(config.section("precision").number("min_loss_scale") == 1);
  CHECK(config.section("model").string("preset") == "tiny");
  CHECK(line_of(made, "learning_rate") == "learning_rate = 0.001 # from: optimizer.params.lr");
  CHECK(line_of(made, "bucket") == "bucket = 200000000 # from: zero_optimization.reduce_bucket_size = 50000000");
  const std::string notes = notes_of(made);
  CHECK_THAT(
      notes,
      Contains("`zero_optimization.contiguous_gradients`: no effect on the numbers: gradients are always contiguous"));
  CHECK_THAT(notes, Contains("DeepSpeed counts elements; here it is bytes, 4 per element"));
  CHECK_THAT(notes, Contains("no effect on the numbers: prescale_gradients, wall_clock_breakdown") &&
                        !Contains("zero_optimization.cpu_offload"));
  CHECK(config.section("offload").string("optimizer") == "none");
  CHECK_THAT(notes, Contains("here norms and biases are not decayed"));
  CHECK_THAT(notes, !Contains("not understood"));
}

TEST_CASE("convert: \"auto\" takes Hugging Face's arguments") {
  const std::string arguments =
      "deepspeed --num_gpus=2 run_clm.py --deepspeed ds.json --model_name_or_path facebook/opt-125m "
      "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --learning_rate 2e-5 --weight_decay 0.01 "
      "--max_steps 500 --warmup_steps 50 --bf16 --block_size 512 --output_dir out --train_file text.txt "
      "--gradient_checkpointing True --logging_steps 5 --save_steps 100 --save_total_limit 2 --do_train";
  for (const int stage : {2, 3}) {
    const Converted made = converted(integrated(stage, stage == 2 ? zero2 : zero3), arguments);
    INFO(made.text << notes_of(made));
    const Config config = built_config(made.text);
    const Section &train = config.section("train"), &optimizer = config.section("optimizer"),
                  &schedule = config.section("schedule");
    CHECK(made.ranks == 2);
    CHECK(train.integer("micro_batch") == 2);
    CHECK(train.integer("accumulate") == 8);
    CHECK(train.integer("steps") == 500);
    CHECK(train.integer("sequence_length") == 512);
    CHECK(train.number("grad_clip") == 1.0);
    CHECK(optimizer.number("learning_rate") == 2e-5);
    CHECK(optimizer.number("weight_decay") == 0.01);
    CHECK(optimizer.number("beta2") == 0.999);
    CHECK(schedule.string("kind") == "WarmupLR");
    CHECK(schedule.integer("warmup_num_steps") == 50);
    CHECK(schedule.number("warmup_max_lr") == 2e-5);
    CHECK(config.section("recompute").string("policy") == "full");
    CHECK(config.section("checkpoint").integer("keep") == 2);
    CHECK(config.section("checkpoint").integer("every") == 100);
    CHECK(config.section("model").string("plugin") == "opt");
    CHECK(config.section("data").strings("paths") == std::vector<std::string>{"text.txt"});
    CHECK(config.section("zero").string("plugin") == "zero" + std::to_string(stage));
    CHECK(config.section("zero").integer("bucket") == (stage == 2 ? 800000000 : 4 * 768 * 768));
    CHECK(line_of(made, "micro_batch") ==
          "micro_batch = 2 # from: train_micro_batch_size_per_gpu = \"auto\": --per_device_train_batch_size");
    const std::string notes = notes_of(made);
    CHECK(config.section("precision").string("plugin") == "bf16");
    CHECK(config.section("offload").string("optimizer") == "host");
    CHECK(config.section("offload").string("parameters") == (stage == 3 ? "host" : "none"));
    CHECK_THAT(notes, Contains("new weights of this size are written; to start from the published ones"));
    CHECK_THAT(notes, Contains("the tokenizer is not known"));
    if (stage == 3) {
      CHECK_THAT(notes, Contains("`zero_optimization.stage3_max_live_parameters` is no limit in DeepSpeed"));
      CHECK_THAT(made.text, Contains("# live_limit = 4000000000"));
      CHECK_THAT(notes, Contains("it counts blocks of the model, 1 by default; not converted"));
    }
  }
}

TEST_CASE("convert: \"auto\" without arguments takes Hugging Face's defaults, and says so") {
  const Converted made = converted(integrated(2, zero2), "--preset tiny");
  const Config config = built_config(made.text);
  CHECK(config.section("train").integer("micro_batch") == 8);
  CHECK(config.section("train").integer("accumulate") == 1);
  CHECK(config.section("optimizer").number("learning_rate") == 5e-5);
  CHECK(config.section("schedule").integer("warmup_num_steps") == 0);
  CHECK_THAT(line_of(made, "learning_rate"), Contains("\"auto\": Hugging Face's default of learning_rate"));
  CHECK_THAT(notes_of(made), Contains("no argument is given, so Hugging Face's default is written"));
  // The width is not known without a model.
  CHECK_THAT(notes_of(converted(integrated(3, zero3))),
             Contains("but the model is not known: zero.bucket keeps its default"));
}

TEST_CASE("convert: a value that contradicts an argument is refused, as Hugging Face does") {
  CHECK_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"})",
                     "--per_device_train_batch_size 2"),
             Contains("`train_micro_batch_size_per_gpu` = 4 contradicts `--per_device_train_batch_size` = 2"));
  CHECK_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true}})",
                     "--per_device_train_batch_size 2 --fp16 False"),
             Contains("`fp16.enabled` = true contradicts `--fp16` = false"));
  // Numbers are compared by value.
  CHECK_NOTHROW(converted(R"({"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1})",
                          "--per_device_train_batch_size 2 --max_grad_norm 1.0"));
}

TEST_CASE("convert: zero1 with a fixed loss scale, SGD and monitors") {
  const Converted made = converted(R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}},
    "fp16": {"enabled": true, "loss_scale": 128},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8},
    "tensorboard": {"enabled": true, "output_path": "tb"}, "wandb": {"enabled": false, "project": "x"},
    "flops_profiler": {"enabled": true, "profile_step": 1}
  })",
                                   "--preset tiny");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(config.section("optimizer").string("plugin") == "sgd");
  CHECK(config.section("optimizer").number("momentum") == 0.9);
  CHECK(config.section("optimizer").boolean("nesterov"));
  CHECK(config.section("zero").integer("bucket") == 2000000000);
  const std::string notes = notes_of(made);
  CHECK(config.section("precision").number("loss_scale") == 128);
  CHECK_THAT(notes, Contains("`tensorboard`: no effect on the numbers: every step's numbers are in metrics.jsonl"));
  CHECK_THAT(notes, !Contains("`wandb`") && Contains("wandb"));
  CHECK_THAT(notes, Contains("`flops_profiler`: no effect on the numbers: `engine plan CONFIG`"));
  CHECK_THAT(notes, Contains("`gradient_clipping` is not given: new versions of DeepSpeed clip at 1.0"));
}

TEST_CASE("convert: an optimizer that does not exist") {
  const std::string begin = R"({"train_batch_size": 8, "optimizer": {"type": ")",
                    end = R"(", "params": {"lr": 0.01}}})";
  for (const char* name : {"Lamb", "OneBitAdam"}) {
    CHECK_THAT(refusal(begin + name + end),
               Contains("there is no such optimizer here") && Contains("--ignore optimizer"));
    CHECK_THAT(refusal(begin + name + end, "", "ds.json", {"optimizer.type"}), Contains("`optimizer.type` is missing"));
    CHECK_NOTHROW(converted(begin + name + end, "--preset tiny", "ds.json", {"optimizer"}));
  }
  CHECK_THAT(refusal(R"({"train_batch_size": 8, "optimizer": {"params": {"lr": 1}}})"),
             Contains("`optimizer.type` is missing; DeepSpeed refuses this too"));
  CHECK_THAT(refusal(R"({"train_batch_size": 8, "optimizer": {"type": "Adam",
                                    "params": {"adam_w_mode": false, "weight_decay": 0.1}}})"),
             Contains("adds the decay to the gradient"));
}

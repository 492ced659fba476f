// SPDX-License-Identifier: Apache-2.0
// Names of other trainers: the error gives the key to type, and the value if it is known.
#include <algorithm>
#include <catch2/catch.hpp>

#include "session/config/foreign.hpp"
#include "tests/config/support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

// The message of the one problem that `more` makes.
std::string one_message(const std::string& more) {
  const std::string text = problems(with(more));
  INFO(text);
  CHECK_THAT(text, Contains("\n1 problem in opt.toml"));
  return text.substr(0, text.find('\n'));
}

}  // namespace

TEST_CASE("names of other trainers point at a key that exists") {
  for (const char* name : {"gradient_accumulation_steps", "train_micro_batch_size_per_gpu", "max_steps", "seq_len",
                           "batch_size", "gradient_clipping", "lr", "steps_per_print"}) {
    const auto other = foreign_name("", name, {});
    REQUIRE(other);
    const std::string here = other->here;
    const auto& all = section_schemas();
    const auto section = std::find_if(
        all.begin(), all.end(), [&](const auto& schema) { return schema.name == here.substr(0, here.find('.')); });
    REQUIRE(section != all.end());
    CHECK(find_option(section->options, here.substr(here.find('.') + 1)));
  }
  CHECK_FALSE(foreign_name("train", "steps", int64_t{3}));
  CHECK_FALSE(foreign_name("", "", {}));
}

TEST_CASE("a name of another trainer is reported with the key and the value to type") {
  CHECK(one_message("[train]\ngradient_accumulation_steps = 4\n") ==
        "error[E0111]: `gradient_accumulation_steps` is DeepSpeed's and Hugging Face's name; here it is "
        "`train.accumulate = 4`");
  CHECK_THAT(one_message("[train]\nlr = 1e-3\n"), Contains("here it is `optimizer.learning_rate = 0.001`"));
  CHECK_THAT(
      one_message("[optimizer.params]\nlr = 1e-3\n"),
      Contains("`params.lr` is DeepSpeed's and torchtitan's name; here it is `optimizer.learning_rate = 0.001`"));
  CHECK_THAT(one_message("[zero]\nstage = 3\n"), Contains("`stage` is DeepSpeed's name; here it") &&
                                                     Contains("`zero.plugin = \"zero3\"`, which does not exist yet"));
  CHECK_THAT(one_message("[optimizer]\ntype = \"AdamW\"\n"), Contains("here it is `optimizer.plugin = \"adamw\"`"));
  CHECK_THAT(one_message("[optimizer]\noptim = \"adamw_torch\"\n"),
             Contains("here it is `optimizer.plugin = \"adamw\"`"));
  CHECK_THAT(one_message("[optimizer]\nbetas = [0.9, 0.95]\n"),
             Contains("here it is `optimizer.beta1 = 0.9, optimizer.beta2 = 0.95`"));
  CHECK_THAT(one_message("[train]\ngradient_checkpointing = true\n"),
             Contains("here it is `recompute.policy = \"full\"`"));
  CHECK_THAT(problems("[model]\nplugin = \"llama\"\npreset = \"tiny\"\nd_model = 64\nnum_layers = 4\nnum_heads = 2\n"),
             Contains("here it is `model.hidden_size = 64`") && Contains("here it is `model.num_hidden_layers = 4`") &&
                 Contains("here it is `model.num_attention_heads`"));
  CHECK_THAT(one_message("[zero]\nreduce_bucket_size = 5e8\n"),
             Contains("here it is `zero.bucket = 2000000000`"));  // elements there, bytes here
  // A value that does not fit is not repeated.
  CHECK_THAT(one_message("[train]\nmax_steps = -1\n"), Contains("here it is `train.steps`"));
  CHECK_THAT(one_message("[zero]\nreduce_bucket_size = \"auto\"\n"), Contains("here it is `zero.bucket`"));
  CHECK_THAT(one_message("[zero]\nreduce_bucket_size = 9223372036854775807\n"), Contains("here it is `zero.bucket`"));
  // Keys whose value means something else.
  CHECK_THAT(problems(with("[train]\nnum_train_epochs = 3\n")),
             Contains("here it is `train.epochs`\n") && Contains("help: its steps are epochs x training samples"));
  CHECK_THAT(problems(with("[train]\nsteps = 500\nwarmup_ratio = 0.1\n")),
             Contains("here it is `schedule.warmup_steps = 50`") && Contains("warmup_ratio x train.steps"));
  CHECK_THAT(problems("train_batch_size = 8\n" + with("")),
             Contains("error[E0111]: `train_batch_size` is DeepSpeed's name; here it is `train.global_batch = 8`"));
}

TEST_CASE("a name without an equivalent is reported as such") {
  CHECK_THAT(problems(with("[train]\nreport_to = \"wandb\"\n")),
             Contains("`report_to` is Hugging Face's name; it has no equivalent here") &&
                 Contains("help: remove it: every step's numbers are in metrics.jsonl"));
  for (const char* written : {"[fp16]\nenabled = true\n", "[train]\nfp16 = true\n"})
    CHECK_THAT(problems(with(written)),
               Contains("here it would be `precision.plugin = \"fp16\"`, which does not exist yet") &&
                   Contains("help: available: `fp32`"));
  CHECK_THAT(one_message("[train]\nbf16 = false\n"), Contains("here it is `precision.plugin = \"fp32\"`"));
  CHECK_THAT(one_message("[optimizer]\ntype = \"Lion\"\n"),
             Contains("here it would be `optimizer.plugin = \"lion\"`, which does not exist yet"));
  CHECK_THAT(one_message("[train]\nfsdp = \"full_shard auto_wrap\"\n"), Contains("`zero.plugin = \"zero3\"`"));
}

TEST_CASE("each key of another trainer's section has its own line") {
  const std::string text = problems(
      with("[zero_optimization]\nstage = 2\noverlap_comm = false\ncontiguous_gradients = true\nstage3_novel = 1\n"
           "bucket = 3\n[zero_optimization.offload_optimizer]\ndevice = \"cpu\"\npin_memory = true\n"
           "[scheduler]\ntype = \"WarmupLR\"\n[scheduler.params]\nwarmup_num_steps = 100\n"));
  for (const char* line :
       {"[zero_optimization] is DeepSpeed's name; here it is `[zero]`",
        "`zero_optimization.stage` is DeepSpeed's name; here it would be `zero.plugin = \"zero2\"`",
        "`zero_optimization.overlap_comm` is DeepSpeed's name; here it is `zero.overlap = false`",
        "`zero_optimization.contiguous_gradients` is DeepSpeed's name; it has no equivalent here",
        "error[E0103]: unknown key `zero_optimization.stage3_novel`",
        "`zero_optimization.bucket`: here it is `zero.bucket = 3`",
        "`zero_optimization.offload_optimizer.device` is DeepSpeed's name; here it is `offload.optimizer = \"host\"`",
        "`scheduler.type` is DeepSpeed's name; here it is `schedule.kind = \"WarmupLR\"`",
        "`scheduler.params.warmup_num_steps`: here it is `schedule.warmup_num_steps = 100`"})
    CHECK_THAT(text, Contains(line));
}

TEST_CASE("a key that is written in a table of its section") {
  CHECK(one_message("[optimizer.params]\neps = 1e-6\n") ==
        "error[E0105]: `eps` is a key of [optimizer] itself, not of a table in it: `optimizer.eps = 1e-06`");
  CHECK_THAT(one_message("[optimizer.options]\nweight_decay = \"x\"\n"), Contains("in it: `optimizer.weight_decay`"));
}

TEST_CASE("flags of other trainers' commands are reported with their equivalents") {
  CHECK_THAT(foreign_flag("--num_gpus", "2"), Contains("engine run CONFIG --ranks N"));
  CHECK_THAT(foreign_flag("--num-gpus=2", ""), Contains("--ranks N"));
  CHECK_THAT(foreign_flag("--dry_run", ""), Contains("engine check CONFIG"));
  CHECK_THAT(foreign_flag("--check_memory", ""), Contains("engine plan CONFIG"));
  CHECK_THAT(foreign_flag("--preset", "7b"), Contains("model.preset=NAME") && Contains("engine init"));
  CHECK_THAT(foreign_flag("--deepspeed_config", "ds.json"), Contains("engine config convert FILE"));
  CHECK_THAT(foreign_flag("--max_steps=30", ""), Contains("here it is `train.steps = 30`"));
  CHECK_THAT(foreign_flag("--lr", "1e-4"), Contains("here it is `optimizer.learning_rate = 0.0001`"));
  CHECK_THAT(foreign_flag("--gradient_checkpointing", ""), Contains("here it is `recompute.policy`"));
  CHECK_THAT(foreign_flag("--report_to", "wandb"), Contains("metrics.jsonl"));
  CHECK_THAT(foreign_flag("--zero_optimization", ""), Contains("`[zero]` of the configuration"));
  CHECK_THAT(foreign_flag("--port", "8080"), Contains("listens on no port") && Contains("engine report RUN"));
  CHECK_THAT(foreign_flag("--main-process-port=29500", ""), Contains("listens on no port"));
  CHECK(foreign_flag("--novel", "x\"y").empty());
}

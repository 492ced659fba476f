// SPDX-License-Identifier: Apache-2.0
// Launch lines as people type them.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

int64_t ranks(const std::string& line) {
  return converted("", line + " --max_steps 5").ranks;
}

Config config_of(const std::string& line) {
  const Converted made = converted("", line);
  INFO(made.text << notes_of(made));
  return built_config(made.text, {"model.plugin=llama", "model.preset=tiny"});
}

}  // namespace

TEST_CASE("convert: how many ranks a launch line starts") {
  CHECK(ranks("deepspeed --num_gpus=4 --module train") == 4);
  CHECK(ranks("deepspeed --num_nodes 2 --num_gpus 8 --master_port 29501 train.py") == 16);
  CHECK(ranks("deepspeed --include localhost:0,2,3 train.py") == 3);
  CHECK(ranks("deepspeed --include 'a:0,1@b:0,1' train.py") == 4);
  CHECK(ranks("CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py") == 2);
  CHECK(ranks("CUDA_VISIBLE_DEVICES=0,1,2,3 MASTER_ADDR=localhost deepspeed --num_gpus=2 train.py") == 2);
  CHECK(ranks("export CUDA_VISIBLE_DEVICES=0,1,2; cd x && deepspeed train.py") == 3);
  CHECK(ranks("accelerate launch --num_processes 8 --multi_gpu train.py") == 8);
  CHECK(ranks("accelerate launch --num_machines 2 --num_processes=16 -m pkg.train") == 16);
  CHECK(ranks("python -m torch.distributed.launch --nproc_per_node 2 train.py") == 2);
  CHECK(ranks("python -m torch.distributed.run --nnodes 2 --nproc_per_node 2 train.py") == 4);
  CHECK(ranks("torchrun --standalone --nproc-per-node=2 train.py") == 2);
  CHECK(ranks("mpirun -np 3 python train.py") == 3);
  CHECK(ranks("mpirun -n 3 -x PATH --hostfile h python train.py") == 3);
  CHECK(ranks("srun -n 6 python train.py --seed 2") == 6);
  CHECK(ranks("srun -N 4 --ntasks-per-node=8 python t.py") == 32);
  CHECK(ranks("srun --nodes=4 --ntasks-per-node=8 --gres=gpu:8 python t.py") == 32);
  CHECK(ranks("srun -N4 -n32 python t.py") == 32);
  CHECK(ranks("srun -N 4 --ntasks-per-node=1 torchrun --nnodes 4 --nproc_per_node 8 t.py") == 32);
  CHECK(ranks("srun -N 3 python t.py") == 3);
  CHECK(ranks("#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node=8 # all\nmodule load x\nsrun python t.py") == 32);
  CHECK(ranks("sbatch --nodes=2 --ntasks-per-node=2 python t.py") == 4);
  CHECK(ranks("export A=1\nGPUS=6\ncd x\ntorchrun --nproc_per_node=$GPUS t.py") == 6);
  CHECK(ranks("bash -c \"torchrun --nproc_per_node 3 t.py --seed 2\"") == 3);
  CHECK(ranks("NPROC_PER_NODE=4 NNODES=2 llamafactory-cli train --finetuning_type full") == 8);
  CHECK(ranks("--num_gpus 2") == 2);
  CHECK(ranks("train.py") == 0);
  CHECK_THAT(refusal("", "deepspeed --num_gpus 0 train.py"), Contains("is not a number of ranks"));
}

TEST_CASE("convert: ranks that a line does not say are left open, and the flag is named") {
  for (const char* line : {"torchrun --nproc_per_node=$NGPU t.py", "torchrun --nnodes=2 --nproc_per_node=gpu t.py",
                           "deepspeed --num_gpus ${GPUS} t.py", "torchrun --nnodes $N --nproc_per_node 8 t.py",
                           "torchrun --nnodes=1:4 --nproc_per_node=8 t.py", "srun -n $SLURM_NTASKS python t.py"}) {
    const Converted made = converted(R"({"train_batch_size": 512, "gradient_accumulation_steps": 4})",
                                     std::string(line) + " --preset tiny");
    INFO(line << "\n" << made.text << notes_of(made));
    CHECK(made.ranks == 0);
    CHECK_THAT(notes_of(made), Contains("says no number, so the number of ranks is not known"));
    // A step has the same samples with any number of ranks.
    CHECK(built_config(made.text).section("train").integer("global_batch") == 512);
    CHECK(built_config(made.text).section("train").integer("micro_batch") == 1);
    CHECK_THAT(made.text, Contains("# micro_batch = 1 "));
  }
  const Converted known = converted(R"({"train_batch_size": 512, "gradient_accumulation_steps": 4})",
                                    "srun -N 4 --ntasks-per-node=8 python t.py --preset tiny");
  CHECK(known.ranks == 32);
  CHECK(built_config(known.text).section("train").integer("micro_batch") == 4);
}

TEST_CASE("convert: the flags of a script") {
  const Converted made = converted("", R"(deepspeed --hostfile h --num_gpus 2 \
    train.py --preset tiny --batch_size 3 --lr 1e-3 --lr=2e-3 --seq_len 64 --wandb_name "a b" --min-lr 1e-5 # the end)");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(config.section("train").integer("micro_batch") == 3);
  CHECK(config.section("train").integer("sequence_length") == 64);
  CHECK(config.section("optimizer").number("learning_rate") == 2e-3);  // the last one, as scripts read it
  CHECK(config.section("schedule").number("min_learning_rate") == 1e-5);
  CHECK_THAT(notes_of(made), Contains("of the launch line, not converted: --hostfile"));
  CHECK_THAT(refusal("", "train.py --name 'a"), Contains("--args: a quote is not closed"));
  CHECK_THAT(refusal("", "train.py"), Contains("there is nothing to convert"));
  CHECK_THAT(refusal("", "train.py --output_dir \xff"), Contains("--args is not UTF-8"));
  CHECK_THAT(refusal("", "train.py --deepspeed none.json --max_steps 3"), Contains("cannot read none.json"));
  // key=value, and flags that turn others off.
  CHECK(config_of("python train.py learning_rate=1e-4 max_steps=7 +trainer.seed=3").section("train").integer("steps") ==
        7);
  CHECK(config_of("python train.py learning_rate=1e-4 max_steps=7 trainer.seed=3").section("train").integer("seed") ==
        3);
  CHECK(
      config_of("python -u train.py --max_steps=7 --no_gradient_checkpointing").section("recompute").string("policy") ==
      "none");
  CHECK(config_of("python train.py --max_steps 7 --gradient_checkpointing --tf32 False")
            .section("recompute")
            .string("policy") == "full");
  CHECK_THAT(refusal("", "torchrun train.py --max_steps 7 --not_known"), Contains("not understood: --not_known"));
  CHECK(config_of("python train.py --max_steps 7 2>&1 | tee log.txt").section("train").integer("steps") == 7);
}

TEST_CASE("convert: variables of the shell") {
  CHECK(config_of("LR=2e-4\nARGS=\"--max_steps 7 --seed 3\"\npython train.py --learning_rate $LR ${ARGS}")
            .section("train")
            .integer("seed") == 3);
  CHECK(config_of("export LR=2e-4; python train.py --max_steps 7 --learning_rate ${LR}")
            .section("optimizer")
            .number("learning_rate") == 2e-4);
  CHECK_THAT(refusal("", "python train.py --max_steps 7 --learning_rate $LR"),
             Contains("`--learning_rate` = $LR is a variable of the shell: give its value"));
  CHECK_THAT(refusal("", "python train.py --max_steps 7 $GPT_ARGS"),
             Contains("`$GPT_ARGS` is a variable of the shell"));
  CHECK_THAT(notes_of(converted("", "python train.py --max_steps 7 --output_dir $OUT")),
             Contains("`--output_dir` = $OUT is a variable of the shell: not converted"));
}

TEST_CASE("convert: flags of accelerate launch count") {
  const Converted made =
      converted("",
                "accelerate launch --num_processes 4 --mixed_precision bf16 --use_deepspeed --zero_stage 2 "
                "--gradient_accumulation_steps 4 --gradient_clipping 0.5 --offload_optimizer_device cpu "
                "train.py --preset tiny --learning_rate 1e-4 --max_steps 100 "
                "--per_device_train_batch_size 2");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(made.ranks == 4);
  CHECK(config.section("precision").string("plugin") == "bf16");
  CHECK(config.section("train").integer("accumulate") == 4);
  CHECK(config.section("train").number("grad_clip") == 0.5);
  CHECK(config.section("zero").string("plugin") == "zero2");
  CHECK(config.section("offload").string("optimizer") == "host");
  CHECK_THAT(notes_of(made), Contains("`--use_deepspeed`"));
  const auto with = [](const std::string& flags) {
    return config_of("accelerate launch " + flags + " train.py --learning_rate 1e-4 --max_steps 9");
  };
  CHECK(with("--mixed_precision=fp16").section("precision").string("plugin") == "fp16");
  CHECK(with("--mixed_precision no").section("precision").string("plugin") == "fp32");
  CHECK(with("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP").section("zero").string("plugin") == "zero2");
  CHECK(with("--use_fsdp --fsdp_sharding_strategy 1").section("zero").string("plugin") == "zero3");
  CHECK(with("--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false").section("zero").string("plugin") ==
        "zero2");
  CHECK(with("--use_fsdp --fsdp_offload_params true").section("offload").string("parameters") == "host");
  CHECK(with("--zero_stage 3 --offload_param_device cpu").section("offload").string("parameters") == "host");
  // The script's own argument counts before the launcher's.
  const Converted both =
      converted("",
                "accelerate launch --gradient_accumulation_steps 4 train.py --preset tiny --max_steps 9 "
                "--gradient_accumulation_steps 2");
  CHECK(built_config(both.text).section("train").integer("accumulate") == 2);
  CHECK_THAT(notes_of(both), Contains("`--gradient_accumulation_steps` = 4 is not used"));
  CHECK_THAT(refusal("", "accelerate launch --mixed_precision fp8 train.py --max_steps 9"),
             Contains("add [[transforms]] with plugin = \"fp8\""));
  CHECK_THAT(refusal("", "accelerate launch --mixed_precision int4 train.py --max_steps 9"),
             Contains("there is no such number format here"));
  CHECK_THAT(refusal("", "accelerate launch --use_megatron_lm train.py --max_steps 9"),
             Contains("give [parallel], the micro-batch"));
  CHECK_THAT(refusal("", "accelerate launch --novel_flag 3 train.py --max_steps 9"),
             Contains("not understood: --novel_flag"));
}

TEST_CASE("convert: programs of trainers name their files") {
  const auto with = [](const std::string& line, const std::string& wanted, const std::string& text) {
    ForeignRun run{"", "", line, {}};
    std::vector<std::string> asked;
    run.read = [&](const std::string& path) -> std::string {
      asked.push_back(path);
      if (path != wanted) throw Error(Exit::usage, "cannot read " + path);
      return text;
    };
    const Converted made = convert_run(run, schemas_of(built_plugins()));
    CHECK(asked == std::vector<std::string>{wanted});
    return built_config(made.text, {"model.plugin=llama", "model.preset=tiny"}).section("train");
  };
  CHECK(with("llamafactory-cli train cases/full.yaml", "cases/full.yaml",
             "stage: pt\nfinetuning_type: full\nmax_steps: 9\n")
            .integer("steps") == 9);
  CHECK(with("llamafactory-cli train full.yaml max_steps=11", "full.yaml",
             "finetuning_type: full\nstage: pt\nmax_steps: 9\n")
            .integer("steps") == 11);
  CHECK(with("axolotl train fft.yml", "fft.yml", "base_model: x\nmax_steps: 9\n").integer("steps") == 9);
  CHECK(with("accelerate launch -m axolotl.cli.train fft.yml", "fft.yml", "base_model: x\nmax_steps: 9\n")
            .integer("steps") == 9);
  CHECK(with("trl sft --config sft.yaml", "sft.yaml", "max_steps: 9\n").integer("steps") == 9);
  CHECK(
      with("python run_clm.py args.json", "args.json", "{\"output_dir\": \"o\", \"max_steps\": 9}").integer("steps") ==
      9);
  CHECK(with("accelerate launch --config_file acc.yaml train.py --max_steps 9", "acc.yaml",
             "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n")
            .integer("steps") == 9);
  for (const char* line : {"trl reward --max_steps 3", "trl grpo --max_steps 3",
                           "llamafactory-cli export --max_steps 3", "axolotl inference --max_steps 3"})
    CHECK_THAT(refusal("", line), Contains("does not exist here yet"));
}

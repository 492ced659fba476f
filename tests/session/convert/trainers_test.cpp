// SPDX-License-Identifier: Apache-2.0
// Files of other trainers: axolotl, LLaMA-Factory, TRL, accelerate, nanoGPT, Megatron-LM, one's own.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Config taken_config(const Converted& made) {
  INFO(made.text << notes_of(made));
  return built_config(made.text, {"model.plugin=llama", "model.preset=tiny"});
}

Config from_yaml(const std::string& text, const std::string& arguments = "") {
  return taken_config(converted(text, arguments, "a.yaml"));
}

}  // namespace

TEST_CASE("convert: axolotl") {
  const std::string text = R"(base_model: ./llama
model_type: LlamaForCausalLM
datasets:
  - path: data.jsonl
    type: completion
    field: body
dataset_prepared_path: last_run_prepared
val_set_size: 0.05
output_dir: ./outputs/out
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 2
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
warmup_steps: 10
evals_per_epoch: 4
weight_decay: 0.1
special_tokens:
  pad_token: <|end_of_text|>
adapter:
load_in_8bit: false
deepspeed:
)";
  const Converted made = converted(text, "", "axolotl.yml");
  INFO(made.text << notes_of(made));
  const Config config = taken_config(made);
  const Section& train = config.section("train");
  CHECK(train.integer("micro_batch") == 2);
  CHECK(train.integer("accumulate") == 4);
  CHECK(train.integer("sequence_length") == 2048);
  CHECK(train.number("epochs") == 2);
  CHECK(config.section("data").strings("paths") == std::vector<std::string>{"data.jsonl"});
  CHECK(config.section("data").string("field") == "body");
  CHECK(config.section("data").boolean("pack"));
  CHECK(config.section("data").number("validation") == 0.05);
  CHECK(config.section("optimizer").string("plugin") == "adamw8bit");
  CHECK(config.section("schedule").string("kind") == "cosine");
  CHECK(config.section("schedule").integer("warmup_steps") == 10);
  CHECK(config.section("precision").string("plugin") == "bf16");
  CHECK(config.section("recompute").string("policy") == "full");
  CHECK_THAT(notes_of(made), Contains("`special_tokens.pad_token`") || Contains("`special_tokens`"));
  // Its defaults: cosine to 0, 0.03 of the steps to warm up, no accumulation.
  const Config plain = from_yaml("base_model: x\nmax_steps: 1000\nlearning_rate: 1e-4\n");
  CHECK(plain.section("schedule").string("kind") == "cosine");
  CHECK(plain.section("schedule").integer("warmup_steps") == 30);
  CHECK(plain.section("train").integer("micro_batch") == 1);
  CHECK(plain.section("train").integer("sequence_length") == 512);
  CHECK(plain.section("precision").string("plugin") == "bf16");
  CHECK_THAT(refusal("base_model: x\nadapter: llama-adapter\n", "", "a.yml"),
             Contains("another kind of training (adapters that are not LoRA), which does not exist here yet"));
  CHECK_THAT(refusal("base_model: x\nrl: grpo\n", "", "a.yml"), Contains("another kind of training"));
  CHECK_THAT(refusal("base_model: x\nload_in_4bit: true\n", "", "a.yml"), Contains("another kind of training"));
  CHECK_THAT(refusal("base_model: x\nplugins:\n  - axolotl.integrations.x\n", "", "a.yml"),
             Contains("--ignore plugins"));
  // Chats are for a person.
  const Converted chat = converted(
      "base_model: x\ndatasets:\n  - path: a/b\n    type: chat_template\n  - path: c.jsonl\n    "
      "type: alpaca\n",
      "", "a.yml");
  CHECK_THAT(chat.text, Contains("# paths =") && Contains("# plugin = \"chat\""));
  CHECK_THAT(notes_of(chat),
             Contains("`datasets.0.path` = \"a/b\": data.paths takes files") && Contains("of type \"alpaca\""));
}

TEST_CASE("convert: LLaMA-Factory") {
  const Converted made = converted(R"(### model
model_name_or_path: facebook/opt-125m
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: 
### dataset
dataset: alpaca_zh, identity
template: llama3
cutoff_len: 512
overwrite_cache: true
preprocessing_num_workers: 16
val_size: 0.1
### output
output_dir: saves/full
logging_steps: 10
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
max_steps: 100
lr_scheduler_type: cosine
warmup_ratio: 0.1
pure_bf16: true
use_muon: true
ddp_timeout: 180000000
train_on_prompt: false
)",
                                   "", "lf.yaml");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(config.section("precision").string("plugin") == "bf16");
  CHECK(config.section("optimizer").string("plugin") == "muon");
  CHECK(config.section("optimizer").string("scale") == "rms");
  CHECK(config.section("optimizer").number("weight_decay") == 0);
  CHECK(config.section("train").integer("sequence_length") == 512);
  CHECK(config.section("schedule").integer("warmup_steps") == 10);
  CHECK_THAT(notes_of(made), Contains("`stage`: answers are trained") && !Contains("prompts as well"));
  CHECK_THAT(made.text, Contains("# plugin = \"chat\"") && Contains("# too_long = \"cut\""));
  CHECK_THAT(notes_of(made), Contains("`dataset` = \"alpaca_zh, identity\"") && Contains("`template` = \"llama3\""));
  CHECK_THAT(made.text, Contains("# validation = 0.1"));  // waits for the data
  const auto told = [](const std::string& keys) {
    return refusal(keys + "output_dir: o\nmax_steps: 9\n", "", "lf.yaml");
  };
  for (const char* kind : {"freeze", "oft"})
    CHECK_THAT(told("stage: sft\nfinetuning_type: " + std::string(kind) + "\n"), Contains("does not exist here yet"));
  for (const char* stage : {"rm", "ppo"})
    CHECK_THAT(told("finetuning_type: full\nstage: " + std::string(stage) + "\n"), Contains("does not exist here yet"));
  CHECK_THAT(told("stage: pt\nfinetuning_type: full\nquantization_bit: 4\n"), Contains("does not exist here yet"));
  CHECK_THAT(told("stage: pt\nfinetuning_type: full\nuse_galore: true\n"), Contains("--ignore use_galore"));
}

TEST_CASE("convert: conversations of LLaMA-Factory and axolotl") {
  const auto factory = [](const std::string& keys) {
    return converted("model_name_or_path: x/llama-3.2-1b\nfinetuning_type: full\nmax_steps: 9\n" + keys, "", "lf.yaml");
  };
  // Its stage is sft by default, the loss that of the answers.
  CHECK_THAT(factory("").text, Contains("# plugin = \"chat\"") && !Contains("train_on"));
  CHECK_THAT(factory("train_on_prompt: true\n").text, Contains("# train_on = \"all\""));
  CHECK_THAT(factory("stage: sft\nmask_history: true\nneat_packing: true\n").text,
             Contains("# train_on = \"last\"") && Contains("# pack = true"));
  CHECK_THAT(factory("stage: pt\n").text, !Contains("chat"));
  // It holds nothing out and recomputes activations by default.
  CHECK_THAT(factory("").text, Contains("# validation = 0.0") && Contains("policy = \"full\""));
  CHECK_THAT(factory("val_size: 0.1\ndisable_gradient_checkpointing: true\n").text,
             Contains("# validation = 0.1") && Contains("policy = \"none\""));
  CHECK_THAT(notes_of(factory("")), Contains("`bf16` is not given: LLaMA-Factory then computes in the 16 bits"));
  CHECK_THAT(notes_of(factory("fp16: true\n")), !Contains("is not given: LLaMA-Factory"));

  const auto axolotl = [](const std::string& keys) {
    return converted("base_model: x/llama-3.2-1b\nsequence_len: 64\nmax_steps: 9\nlearning_rate: 1e-5\n" + keys, "",
                     "a.yml");
  };
  const std::string rows = "datasets:\n  - path: chats.jsonl\n    type: chat_template\n    split: train\n";
  const Section data =
      built_config(axolotl(rows + "    field_messages: turns\n").text, {"data.tokenizer=bytes"}).section("data");
  CHECK(data.string("plugin") == "chat");
  CHECK(data.as<std::vector<std::string>>("paths") == std::vector<std::string>{"chats.jsonl"});
  CHECK(data.string("field") == "turns");
  CHECK(data.string("too_long") == "skip");
  CHECK(data.number("validation") == 0);
  CHECK_THAT(axolotl(rows + "excess_length_strategy: truncate\ntrain_on_inputs: true\n").text,
             Contains("too_long = \"cut\"") && Contains("train_on = \"all\""));
  CHECK_THAT(axolotl(rows + "excess_length_strategy: raise\n").text, Contains("too_long = \"stop\""));
  CHECK_THAT(notes_of(axolotl(rows + "    roles_to_train: [user]\n")),
             Contains("datasets.0.roles_to_train: no such setting of a dataset here; not converted"));
  // A prompt of alpaca's own words is another text than that of the model's template.
  const Converted alpaca = axolotl("datasets:\n  - path: rows.jsonl\n    type: alpaca\n");
  CHECK_THAT(notes_of(alpaca), Contains("in the words of the model's chat template"));
  CHECK_THAT(alpaca.text, !Contains("\"chat\""));
}

TEST_CASE("convert: what axolotl asks for, and how it counts a warm-up") {
  const auto from = [](const std::string& keys) {
    return converted("base_model: x/llama-3.2-1b\nsequence_len: 64\n" + keys, "", "a.yml");
  };
  const auto warm = [&](const std::string& keys) {
    return built_config(from("learning_rate: 1e-5\n" + keys).text).section("schedule").integer("warmup_steps");
  };
  CHECK(warm("max_steps: 1000\n") == 30);
  CHECK(warm("max_steps: 10000\n") == 100);
  CHECK(warm("max_steps: 50\n") == 2);  // 1.5, down to 1, of which it makes 2
  CHECK(warm("max_steps: 55\nwarmup_ratio: 0.1\n") == 5);
  CHECK(warm("max_steps: 55\nwarmup_steps: 1\n") == 2);
  CHECK(warm("max_steps: 55\nwarmup_steps: 3\n") == 3);
  const Converted open = from("max_steps: 9\n");
  CHECK_THAT(open.text, Contains("# learning_rate = 2e-5"));
  CHECK_THAT(notes_of(open), Contains("`learning_rate` is not given, and axolotl has no default of it"));
}

TEST_CASE("convert: TRL") {
  const Converted made =
      converted(R"({"output_dir": "o", "max_steps": 5, "dataset_text_field": "text"})", "", "args.json");
  INFO(made.text << notes_of(made));
  CHECK_NOTHROW(taken_config(made));
  CHECK_THAT(made.text, Contains("# paths =") && Contains("# field = \"text\""));
  CHECK(taken_config(made).section("optimizer").number("learning_rate") == 2e-5);
  CHECK(taken_config(made).section("precision").string("plugin") == "bf16");
  const Converted flag =
      converted("", "python sft.py --learning_rate 1e-5 --max_steps 5 --dataset_text_field text --train_file a.jsonl");
  CHECK(taken_config(flag).section("data").string("field") == "text");
  const Converted named = converted(R"(model_name_or_path:
  ./llama
learning_rate:
  0.0001
max_steps: 10
max_length: 256
assistant_only_loss: true
packing: true
)",
                                    "trl sft", "trl.yaml");
  CHECK(taken_config(named).section("train").integer("sequence_length") == 256);
  CHECK(taken_config(named).section("optimizer").number("learning_rate") == 1e-4);
  CHECK_THAT(
      notes_of(named),
      Contains("`assistant_only_loss` = true: the loss is taken on the whole text here, prompts as well, but with "
               "data.plugin = \"chat\""));
  CHECK_NOTHROW(converted("use_peft: false\nlora_r: 16\nmax_steps: 3\n", "trl sft", "trl.yaml"));
  CHECK_THAT(refusal("loss_type: dft\nmax_steps: 3\n", "trl sft", "trl.yaml"), Contains("--ignore loss_type"));
}

TEST_CASE("convert: accelerate's file") {
  const std::string file = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
use_cpu: false
)";
  for (const char* line : {"", "accelerate launch --config_file a.yaml train.py --learning_rate 1e-4 --max_steps 9"}) {
    const Converted made = converted(file, line, "a.yaml");
    INFO(made.text << notes_of(made));
    const Config config = taken_config(made);
    CHECK(made.ranks == 8);
    CHECK(config.section("zero").string("plugin") == "zero3");
    CHECK(config.section("train").integer("accumulate") == 4);
    CHECK(config.section("train").number("grad_clip") == 0.5);
    CHECK(config.section("offload").string("optimizer") == "host");
    CHECK(config.section("precision").string("plugin") == "bf16");
  }
  const Config fsdp = from_yaml(R"(distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: 'no'
num_processes: 4
)",
                                "accelerate launch train.py --max_steps 9");
  CHECK(fsdp.section("zero").string("plugin") == "zero3");
  CHECK(fsdp.section("precision").string("plugin") == "fp32");
}

TEST_CASE("convert: nanoGPT") {
  const Converted made =
      converted("",
                "torchrun --standalone --nproc_per_node=8 train.py --batch_size=12 --block_size=1024 "
                "--gradient_accumulation_steps=40 --max_iters=600 --warmup_iters=20 --dtype=bfloat16 "
                "--compile=False --wandb_log=False");
  INFO(made.text << notes_of(made));
  const Config config = taken_config(made);
  CHECK(made.ranks == 8);
  CHECK(config.section("train").integer("micro_batch") == 12);
  CHECK(config.section("train").integer("accumulate") == 5);  // 40 of all ranks
  CHECK(config.section("train").integer("steps") == 600);
  CHECK(config.section("precision").string("plugin") == "bf16");
  CHECK(config.section("optimizer").number("learning_rate") == 6e-4);
  CHECK(config.section("optimizer").number("beta2") == 0.95);
  // The decay ends at 600,000 there, whatever the run does.
  CHECK(config.section("schedule").string("kind") == "WarmupCosineLR");
  CHECK(config.section("schedule").integer("total_num_steps") == 600000);
  CHECK(config.section("schedule").number("cos_min_ratio") == Approx(0.1));
  CHECK(config.section("schedule").integer("warmup_num_steps") == 20);
  const Config same = taken_config(converted("",
                                             "python train.py --max_iters=600 --lr_decay_iters=600 --min_lr=1e-4 "
                                             "--learning_rate=1e-3 --gradient_accumulation_steps=4 --batch_size=2"));
  CHECK(same.section("schedule").string("kind") == "cosine");
  CHECK(same.section("schedule").number("min_learning_rate") == 1e-4);
  CHECK(same.section("schedule").integer("warmup_steps") == 2000);
  CHECK(same.section("train").integer("global_batch") == 8);  // ranks are not known
  CHECK(taken_config(converted("", "python train.py --max_iters=600 --decay_lr=False"))
            .section("schedule")
            .string("kind") == "constant");
  CHECK_THAT(refusal("", "torchrun --nproc_per_node=3 train.py --max_iters=9 --gradient_accumulation_steps=40"),
             Contains("counts the micro-batches of all ranks, and is not a multiple of 3 ranks"));
  CHECK_THAT(refusal("", "python train.py --max_iters=9 --dropout=0.1"), Contains("dropout"));
  const Converted file = converted("", "python train.py config/train_x.py --max_iters=9");
  CHECK_THAT(notes_of(file), Contains("`config/train_x.py` is a program, which is not read"));
  CHECK_THAT(file.text, !Contains("0.0006"));
}

TEST_CASE("convert: scripts of Hugging Face's without its trainer") {
  const Converted made =
      converted("",
                "accelerate launch --num_processes 8 run_clm_no_trainer.py --learning_rate 1e-4 --max_train_steps 1000 "
                "--lr_scheduler_type cosine --num_warmup_steps 50 --per_device_train_batch_size 2 --block_size 128");
  INFO(made.text << notes_of(made));
  const Config config = taken_config(made);
  CHECK(config.section("train").integer("steps") == 1000);
  CHECK(config.section("schedule").integer("warmup_steps") == 50);
  CHECK(config.section("schedule").string("kind") == "cosine");
  CHECK(config.section("train").number("grad_clip") == 0);  // these do not clip
  CHECK_THAT(refusal("", "train.py --max_train_steps 10 --max_steps 20 --learning_rate 1e-4"),
             Contains("are the same setting"));
}

TEST_CASE("convert: Megatron-LM") {
  const Converted made = converted("", R"(torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 1 --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048
    --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 64 --lr 0.00015 --train-iters 5000
    --lr-decay-iters 5000 --lr-decay-style cosine --min-lr 1e-5 --weight-decay 1e-2 --lr-warmup-fraction .01
    --clip-grad 1.0 --bf16 --data-path my_text --split 949,50,1 --log-interval 100 --save-interval 1000
    --eval-interval 1000 --eval-iters 10 --use-distributed-optimizer --swiglu --normalization RMSNorm)");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text, {"model.plugin=llama", "model.preset=tiny"});
  CHECK(made.ranks == 4);  // of groups of two
  CHECK(config.section("train").integer("micro_batch") == 4);
  CHECK(config.section("train").integer("global_batch") == 64);
  CHECK(config.section("train").integer("steps") == 5000);
  CHECK(config.section("schedule").string("kind") == "cosine");
  CHECK(config.section("schedule").integer("warmup_steps") == 50);
  CHECK(config.section("optimizer").number("beta2") == 0.999);
  CHECK(config.section("precision").string("plugin") == "bf16");
  CHECK_THAT(refusal("", "pretrain_gpt.py --train-iters 10 --lr 1e-4 --lr-decay-style WSD"),
             Contains("there is no such schedule here"));
  CHECK_THAT(refusal("", "pretrain_gpt.py --train-iters 10 --lr 1e-4 --lr-decay-iters 5"),
             Contains("ends with the run"));
  CHECK_THAT(refusal("", "pretrain_gpt.py --train-samples 10 --lr 1e-4"), Contains("lengths are steps here"));
}

TEST_CASE("convert: a script's own YAML, in sections") {
  const Converted made = converted(R"(model_type: "mamba"
num_gpus: 4

model:
  vocab_size: 50257
  max_seq_length: 4096
  d_model: 4864
  n_layers: 45
  d_state: 16
  d_conv: 4
  expand: 2

training:
  batch_size: 1
  gradient_accumulation_steps: 8
  learning_rate: 1e-4
  max_steps: 200000
)",
                                   "", "config.yaml");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(made.ranks == 4);
  CHECK(config.section("model").string("plugin") == "mamba");
  CHECK(config.section("model").integer("hidden_size") == 4864);
  CHECK(config.section("model").integer("num_hidden_layers") == 45);
  CHECK(config.section("model").integer("state_size") == 16);
  CHECK(config.section("model").integer("conv_kernel") == 4);
  CHECK(config.section("model").number("expand") == 2);
  CHECK(config.section("train").integer("sequence_length") == 4096);
  CHECK(config.section("train").integer("micro_batch") == 1);
  CHECK(config.section("train").integer("accumulate") == 8);
  CHECK(config.section("train").integer("steps") == 200000);
  CHECK(config.section("optimizer").number("learning_rate") == 1e-4);
  CHECK(config.section("optimizer").number("beta2") == 0.95);  // a script's defaults are not known
  const Converted other =
      converted(R"({"model": {"name": "tiny"}, "optimizer": {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.98]},
    "train": {"epochs": 2, "grad_clip": 0.5, "seq_len": 32}, "data": {"num_workers": 4, "train_file": "a.txt"}})",
                "", "config.json");
  INFO(other.text << notes_of(other));
  const Config second = built_config(other.text);
  CHECK(second.section("optimizer").number("beta2") == 0.98);
  CHECK(second.section("train").number("epochs") == 2);
  CHECK(second.section("train").number("grad_clip") == 0.5);
  CHECK_THAT(refusal("model:\n  d_model: 64\n  novelty: 3\nmodel_type: mamba\n", "", "c.yaml"),
             Contains("not understood: model.novelty"));
  CHECK_THAT(refusal("model:\n  rope_theta: 500000\nmodel_type: mamba\n", "", "c.yaml"),
             Contains("[model] of `mamba` has no key `rope_theta` here"));
}

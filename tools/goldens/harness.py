# SPDX-License-Identifier: Apache-2.0
"""Makes tests/embed/lm_eval: a tiny model, two tasks, and what lm-evaluation-harness says of them with its `hf` backend.

    pip install torch transformers "lm_eval==0.4.13"
    python3 tools/goldens/harness.py            writes all files
    python3 tools/goldens/harness.py --compare  evaluates the tasks by the engine too, and prints both (PYTHONPATH=tools/python)

The answers to all requests are in golden.json. tests/embed/lm_eval_test.py needs none of these packages.
"""
import json
import os
import pathlib
import random
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "embed" / "lm_eval"
MODEL = FOLDER / "model"
TASKS = {
    "choices.yaml": """task: engine_choices
dataset_path: json
dataset_kwargs: {data_files: {test: choices.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "texts.yaml": """task: engine_texts
dataset_path: json
dataset_kwargs: {data_files: {test: texts.jsonl}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
    "answers.yaml": """task: engine_answers
dataset_path: json
dataset_kwargs: {data_files: {test: choices.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["e", "\\n"], max_gen_toks: 12, do_sample: false, temperature: 0.0}
metric_list: [{metric: exact_match}]
""",
}
WORDS = "tensor plan arena step queue rank lease home unit piece action kernel block weight loss token".split()


def make_texts() -> None:
    draw = random.Random(1)

    def words(n):
        return " ".join(draw.choice(WORDS) for _ in range(n))

    rows = []
    for k in range(10):
        rows.append({"question": words(1 + 3 * k % 17) + (" " if k % 4 == 0 else ""), "answer": k % 3,
                     "choices": [("" if k % 4 == 0 else " ") + words(1 + (k + j) % 4) for j in range(3)]})
    rows[3]["question"] = words(60)  # longer than the model reads
    texts = [{"text": words(n)} for n in (1, 5, 20, 70, 120)] + [{"text": "naïve Größe, 模型 \u00e9"}]
    for name, all_rows in (("choices.jsonl", rows), ("texts.jsonl", texts)):
        (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in all_rows))
    for name, text in TASKS.items():
        (FOLDER / name).write_text(text)


def make_model() -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    MODEL.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<|end|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    tokenizer.save(str(MODEL / "tokenizer.json"))
    (MODEL / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "clean_up_tokenization_spaces": False}))
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=16, intermediate_size=24,
                         num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=48,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, initializer_range=0.4)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(MODEL)


def evaluate(model, **arguments):
    import lm_eval
    from lm_eval.tasks import TaskManager

    return lm_eval.simple_evaluate(model=model, tasks=["engine_choices", "engine_texts", "engine_answers"],
                                   task_manager=TaskManager(include_path=str(FOLDER), include_defaults=False),
                                   log_samples=True, bootstrap_iters=0, **arguments)


def metrics(results):
    return {task: {name: value for name, value in of.items() if isinstance(value, float)}
            for task, of in sorted(results["results"].items())}


def main() -> None:
    os.chdir(FOLDER)
    if sys.argv[1:] != ["--compare"]:
        make_texts()
        make_model()
    theirs = evaluate("hf", model_args=f"pretrained={MODEL},dtype=float32", batch_size=1, device="cpu")
    if sys.argv[1:] == ["--compare"]:
        import engine.lm_eval

        ours = evaluate(engine.lm_eval.Engine(str(MODEL), batch_size=4))
        print(json.dumps({"hf": metrics(theirs), "engine": metrics(ours)}, indent=1))
        return
    golden = {}
    for task, samples in sorted(theirs["samples"].items()):
        golden[task] = [[list(one), answer[0]] for sample in samples
                        for one, answer in zip([list(a.values()) for a in sample["arguments"].values()]
                                               if isinstance(sample["arguments"], dict) else sample["arguments"],
                                               sample["resps"])]
    (FOLDER / "golden.json").write_text(json.dumps({"requests": golden, "metrics": metrics(theirs)}, indent=0) + "\n")


if __name__ == "__main__":
    main()

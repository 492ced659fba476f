#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of the loss `preference`: its values in f64 by NumPy, and training curves by TRL.

  python3 tools/goldens/preference.py [OUT_DIR]      needs numpy, torch, transformers, trl (1.16), datasets

values.txt: random log-probabilities of answers, and for each rule the sums and the gradient that follow from the formulas
of the papers. The gradient is made by complex steps, f(x + ih).imag / h, so no derivative is written down here.

curves.json: 20 steps of each rule on the model of tests/models/hf/single with the two pairs of pairs.jsonl, by SGD. dpo
and ipo are TRL's DPOTrainer, which has two models; simpo and orpo are the functions of its trainers CPO and ORPO, on
log-probabilities by transformers. ORPO's -s_w is added as the paper has it; TRL takes all tokens of all preferred answers
and their prompts together. TRL's ipo is about means over tokens; dpo of means is its sigmoid_norm.

kto.txt and kto.json are the same for kto: the sums and gradients by NumPy, and curves of TRL's KTOTrainer on the four rows of
unpaired.jsonl, which are one batch.
"""
import json
import pathlib
import sys
import tempfile
import types

import numpy
import pyarrow
import torch
import transformers
import trl
from datasets import Dataset
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
HERE = TESTS / "plugins" / "golden"
MODEL = TESTS / "models" / "hf" / "single"
KINDS = ["dpo", "ipo", "simpo", "orpo"]
RULES = [("dpo", 0.1, 0.0, 0.0, 0), ("dpo", 0.7, 0.0, 0.2, 0), ("dpo", 0.5, 0.0, 0.0, 1), ("ipo", 0.1, 0.0, 0.0, 0),
         ("ipo", 0.4, 0.0, 0.0, 1), ("simpo", 2.0, 0.5, 0.0, 1), ("simpo", 2.5, 1.25, 0.1, 1), ("orpo", 0.1, 0.0, 0.0, 1)]
ROWS, LENGTH = 8, 12
PAIRS = [{"prompt": "How are you?", "chosen": " I am well.", "rejected": " Go away, please!"},
         {"prompt": "2 + 2 is", "chosen": " four", "rejected": " twenty-two"}]
STEPS, RATE = 20, 0.01  # at 0.02 orpo jumps at step 14, which makes a rounding error 15 times as large
ALONE = [{"prompt": "How are you?", "completion": " I am well.", "label": True},
         {"prompt": "2 + 2 is", "completion": " twenty-two", "label": False},
         {"prompt": "The sky is", "completion": " blue", "label": True},
         {"prompt": "Say no:", "completion": " yes yes", "label": False}]
KTO_RULES = [(0.1, 1.0, 1.0), (0.6, 1.5, 0.5)]  # beta and the weights of good and of bad answers
CURVES = [("dpo", {"beta": 0.3}, "sigmoid"), ("dpo", {"beta": 0.5, "average": True}, "sigmoid_norm"),
          ("ipo", {"beta": 0.2, "average": True}, "ipo"), ("simpo", {"beta": 2.0, "margin": 0.5}, None),
          ("simpo", {"beta": 2.0, "margin": 1.0, "label_smoothing": 0.1}, None), ("orpo", {"beta": 0.25}, None)]


def log_sigmoid(z):
    return -numpy.log(1 + numpy.exp(-z))


def formula(rule, logprobs, labels, reference):
    """The six sums over pairs; only the first two are of use with complex log-probabilities."""
    kind, beta, margin, smoothing, mean = rule
    sums = numpy.zeros(6, dtype=logprobs.dtype)
    for row in range(0, ROWS, 2):
        answers = [labels[row + k] != -100 for k in range(2)]
        n = [answer.sum() for answer in answers]
        if min(n) == 0:
            continue
        policy = [logprobs[row + k][answers[k]].sum() / (n[k] if mean else 1) for k in range(2)]
        against = [reference[row + k][answers[k]].sum() / (n[k] if mean else 1) for k in range(2)]
        if kind in ("dpo", "ipo"):
            rewards = [beta * (policy[k] - against[k]) for k in range(2)]
        else:
            rewards = [beta * policy[k] for k in range(2)]
        if kind == "ipo":
            loss = ((rewards[0] - rewards[1]) / beta - 1 / (2 * beta)) ** 2
        else:
            odds = [numpy.log(numpy.exp(p) / (1 - numpy.exp(p))) for p in policy]
            z = odds[0] - odds[1] if kind == "orpo" else rewards[0] - rewards[1] - margin
            loss = -(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z)
        nll = -logprobs[row][answers[0]].sum() / n[0]
        ahead = rewards[0].real > rewards[1].real
        sums += [loss, nll, rewards[0], rewards[1], rewards[0] - rewards[1], ahead]
    return sums


def values():
    draw = numpy.random.default_rng(20)
    logprobs = -draw.exponential(1.5, (ROWS, LENGTH))
    reference = numpy.float32(logprobs + draw.normal(0, 0.5, (ROWS, LENGTH))).astype(float)
    labels = draw.integers(0, 200, (ROWS, LENGTH))
    for row in range(ROWS - 2):
        labels[row, :draw.integers(1, 6)] = -100
        labels[row, LENGTH - draw.integers(1, 4):] = -100
    labels[ROWS - 2:] = -100  # a pair of padding
    lines = [f"{ROWS} {LENGTH} {len(RULES)}"]
    for table in (logprobs, labels, reference):
        lines += [" ".join(repr(x.item()) for x in row) for row in table]
    for rule in RULES:
        sums = formula(rule, logprobs, labels, reference)
        d_loss, d_nll, step = 0.625, -1.5, 1e-30
        gradient = numpy.zeros_like(logprobs)
        for row, t in numpy.ndindex(ROWS, LENGTH):
            moved = logprobs.astype(complex)
            moved[row, t] += 1j * step
            one = formula(rule, moved, labels, reference)
            gradient[row, t] = (d_loss * one[0].imag + d_nll * one[1].imag) / step
        lines += [" ".join(map(repr, (KINDS.index(rule[0]), *rule[1:]))), " ".join(repr(x.item()) for x in sums)]
        lines += [" ".join(repr(x.item()) for x in row) for row in gradient]
    return "\n".join(lines) + "\n"


def alone(rule, logprobs, labels, reference, good):
    """Loss, k times the number of answers, and how many are on the right side of k, whose imaginary part is dropped."""
    beta, weights = rule[0], rule[1:]
    rows = [row for row in range(0, ROWS, 2) if min((labels[row + k] != -100).sum() for k in range(2))]
    more = {row: (logprobs[row] - reference[row])[labels[row] != -100].sum() for one in rows for row in (one, one + 1)}
    k = max(0.0, numpy.mean([more[row + 1].real for row in rows]))
    loss, right = 0, 0
    for row in rows:
        side = 1 if good[row] else -1
        z = side * beta * (more[row] - k)
        loss += weights[0 if good[row] else 1] * (1 - 1 / (1 + numpy.exp(-z)))
        right += z.real > 0
    return loss, k * len(rows), right


def kto_values():
    draw = numpy.random.default_rng(21)
    logprobs = -draw.exponential(1.5, (ROWS, LENGTH))
    reference = numpy.float32(logprobs + draw.normal(-0.1, 0.3, (ROWS, LENGTH))).astype(float)
    labels = draw.integers(0, 200, (ROWS, LENGTH))
    labels[:, :3] = -100
    labels[ROWS - 1] = -100  # no label: neither of the two counts
    good = numpy.repeat([1, 0, 1, 0], 2)
    lines = [f"{ROWS} {LENGTH} {len(KTO_RULES)}"]
    for table in (logprobs, labels, reference):
        lines += [" ".join(repr(x.item()) for x in row) for row in table]
    lines.append(" ".join(map(str, good)))
    for rule in KTO_RULES:
        sums = alone(rule, logprobs, labels, reference, good)
        assert sums[1] > 0 and 0 < sums[2] < 3
        gradient = numpy.zeros_like(logprobs)
        for row, t in numpy.ndindex(ROWS, LENGTH):
            moved = logprobs.astype(complex)
            moved[row, t] += 1e-30j
            gradient[row, t] = 0.625 * alone(rule, moved, labels, reference, good)[0].imag / 1e-30
        lines += [" ".join(map(repr, rule)), " ".join(repr(float(numpy.real(x))) for x in sums)]
        lines += [" ".join(repr(x.item()) for x in row) for row in gradient]
    return "\n".join(lines) + "\n"


def model():
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")


def ids(text):
    return list(text.encode())


class Bytes(transformers.PreTrainedTokenizerBase):
    """Only what the trainer asks for: the ids are made here."""
    vocab_files_names = {}

    def __init__(self):
        super().__init__(pad_token="\0", eos_token="\0")

    def convert_tokens_to_ids(self, tokens):
        return 0 if isinstance(tokens, str) else [0 for _ in tokens]

    def get_vocab(self):
        return {chr(k): k for k in range(256)}

    def __len__(self):
        return 256

    def save_pretrained(self, *_, **__):
        return ()


class Trainer(trl.DPOTrainer):
    def _prepare_dataset(self, dataset, *_, **__):
        return dataset

    def _get_train_sampler(self, *_, **__):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def by_trainer(loss_type, keys):
    rows = [{"prompt_ids": ids(p["prompt"]), "chosen_ids": ids(p["chosen"]), "rejected_ids": ids(p["rejected"])} for p in PAIRS]
    with tempfile.TemporaryDirectory() as folder:
        args = trl.DPOConfig(output_dir=folder, loss_type=[loss_type], beta=keys["beta"], max_steps=STEPS, learning_rate=RATE,
                             lr_scheduler_type="constant", optim="sgd", per_device_train_batch_size=2, max_grad_norm=0,
                             logging_steps=1, report_to=[], save_strategy="no", bf16=False, use_cpu=True, weight_decay=0.0,
                             gradient_checkpointing=False, disable_dropout=True, disable_tqdm=True)
        policy = model()
        trainer = Trainer(policy, ref_model=model(), args=args, train_dataset=Dataset(pyarrow.Table.from_pylist(rows * STEPS), fingerprint="pairs"),
                          processing_class=Bytes())
        losses = []
        inner = trainer.compute_loss

        def kept(*a, **k):
            loss = inner(*a, **k)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss
        trainer.compute_loss = kept
        trainer.train()
        logs = [log for log in trainer.state.log_history if "rewards/chosen" in log]
        taken = {"accuracy": "rewards/accuracies"}
        if not keys.get("average"):  # else TRL's rewards are those of sums all the same
            taken.update({"chosen": "rewards/chosen", "rejected": "rewards/rejected", "margin": "rewards/margins"})
        return [{"loss": loss, **{name: log[key] for name, key in taken.items()}} for loss, log in zip(losses, logs)]


class AloneTrainer(trl.KTOTrainer):
    def _prepare_dataset(self, dataset, *_, **__):
        return dataset


def by_kto_trainer(rule):
    rows = [{"prompt_ids": ids(one["prompt"]), "completion_ids": ids(one["completion"]), "label": one["label"],
             "KL_completion_ids": ids(ALONE[k - 1]["completion"])} for k, one in enumerate(ALONE)]
    with tempfile.TemporaryDirectory() as folder:
        args = trl.KTOConfig(output_dir=folder, beta=rule[0], desirable_weight=rule[1], undesirable_weight=rule[2], max_steps=STEPS,
                             learning_rate=RATE, lr_scheduler_type="constant", optim="sgd", per_device_train_batch_size=4,
                             max_grad_norm=0, logging_steps=1, report_to=[], save_strategy="no", bf16=False, use_cpu=True,
                             weight_decay=0.0, gradient_checkpointing=False, disable_dropout=True, disable_tqdm=True)
        trainer = AloneTrainer(model(), ref_model=model(), args=args, processing_class=Bytes(),
                               train_dataset=Dataset(pyarrow.Table.from_pylist(rows * STEPS), fingerprint="rows"))
        losses = []
        inner = trainer.compute_loss

        def kept(*a, **k):
            loss = inner(*a, **k)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss
        trainer.compute_loss = kept
        trainer.train()
        logs = [log for log in trainer.state.log_history if "kl" in log]
        return [{"loss": loss, "kl": log["kl"]} for loss, log in zip(losses, logs)]


def by_functions(kind, keys):
    policy = model()
    optimizer = torch.optim.SGD(policy.parameters(), lr=RATE)
    me = types.SimpleNamespace(beta=keys["beta"], alpha=0.0, loss_type="simpo", simpo_gamma=keys.get("margin", 0),
                               label_smoothing=keys.get("label_smoothing", 0.0),
                               accelerator=types.SimpleNamespace(device=torch.device("cpu")))
    out = []
    for _ in range(STEPS):
        means = {}
        for name in ("chosen", "rejected"):
            means[name] = torch.stack([
                torch.log_softmax(policy(torch.tensor([ids(p["prompt"]) + ids(p[name])])).logits[0, :-1], -1)
                .gather(1, torch.tensor(ids(p["prompt"]) + ids(p[name]))[1:, None])[len(ids(p["prompt"])) - 1:].mean()
                for p in PAIRS])
        if kind == "simpo":
            losses, chosen, rejected = CPOTrainer.cpo_loss(me, means["chosen"], means["rejected"])
            loss = losses.mean()
        else:
            losses, chosen, rejected, _, _ = ORPOTrainer.odds_ratio_loss(me, means["chosen"], means["rejected"])
            loss = -means["chosen"].mean() - losses.mean()
        out.append({"loss": loss.item(), "chosen": chosen.mean().item(), "rejected": rejected.mean().item(),
                    "margin": (chosen - rejected).mean().item(), "accuracy": (chosen > rejected).float().mean().item()})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return out


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    out.mkdir(parents=True, exist_ok=True)
    (out / "values.txt").write_text(values())
    (out / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    curves = [{"kind": kind, "keys": keys, "steps": by_trainer(loss_type, keys) if loss_type else by_functions(kind, keys)}
              for kind, keys, loss_type in CURVES]
    (out / "kto.txt").write_text(kto_values())
    (out / "unpaired.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ALONE))
    made = {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
    (out / "curves.json").write_text(json.dumps({"made_by": made, "rate": RATE, "curves": curves}, indent=1) + "\n")
    curves = [{"keys": dict(zip(("beta", "desirable_weight", "undesirable_weight"), rule)), "steps": by_kto_trainer(rule)}
              for rule in KTO_RULES]
    (out / "kto.json").write_text(json.dumps({"made_by": made, "rate": RATE, "curves": curves}, indent=1) + "\n")


main()

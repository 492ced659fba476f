# SPDX-License-Identifier: Apache-2.0
"""Trials of tools/attack: what others put before the command. A link in a run is not followed; a text sends no control
characters and begins no line of its own; a full standard output and little memory end with their codes; an analysis that was killed, and
whose save was damaged, reaches the same numbers or says why not."""
import json
import re
import shutil
import time

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
TEXTS = ["\x1b[2J", "\x1b]0;title\x07", "\nerror: forged", "\rforged", "\x00", "\x7f", "\u009b31m", "\nnote: forged\n", "\u202e", "'", "\\"]
KEYS = ["model.from", "model.preset", "model.plugin", "comm.plugin", "job.plugin", "optimizer.plugin", "device.plugin",
        "schedule.kind", "precision.plugin", "run.name", "run.out", "data.tokenizer", "data.cache", "train.freeze",
        "data.paths", "plugins.path", "offload.nvme_paths", "data.plugin"]
LISTS = {"data.paths", "plugins.path", "offload.nvme_paths", "train.freeze"}


def outside(trial):
    trial.random.choice([links, links, texts, texts, full, memory, analysis])(trial)


def base(trial, config, text):
    (trial.folder / "text.txt").write_text(text)
    (trial.folder / "c.toml").write_text(config + "[log]\ntensorboard = true\n")


def state_of(folder):
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
            for p in sorted(folder.rglob("*"))}


def links(trial):
    trial.run("run", "c.toml", "--out", "run", allowed={0})
    run, elsewhere = trial.folder / "run", trial.folder / "elsewhere"
    folders = sorted(p for p in run.rglob("*") if p.is_dir())
    chosen = trial.random.choice(folders)
    trial.say(f"{chosen.relative_to(run)} becomes a link")
    shutil.move(chosen, elsewhere)
    (elsewhere / ".tmp-step-00000001").mkdir()
    chosen.symlink_to(trial.random.choice([elsewhere, "../" * (len(chosen.relative_to(run).parts)) + "elsewhere"]))
    before = state_of(elsewhere)
    more = [["run", "run", "train.steps=10"], ["run", "c.toml", "--out", "run"], ["eval", "run"], ["ckpt", "gc", "run"],
            ["ckpt", "gc", "run", "--keep", "1"], ["ckpt", "verify", "run"], ["report", "run"], ["generate", "run", "a"],
            ["ckpt", "export", "run", "--to", "hf"], ["analyse", "run"]]
    for words in trial.random.sample(more, 4):
        trial.run(*words)
        if state_of(elsewhere) != before:
            trial.fail(f"{words} changed what the link leads to")


def clean(trial):
    text = trial.output()
    found = CONTROL.search(text)
    if found or re.search(r"^(error: |note: )?forged", text, re.MULTILINE):
        trial.fail(f"control characters or a forged line: {text!r}")


def texts(trial):
    text = "/x" + "".join(trial.random.choice(TEXTS) for _ in range(trial.random.randint(1, 4)))
    for key in trial.random.sample(KEYS, 5):
        value = json.dumps(text)
        words = [f"{key}=[{value}]" if key in LISTS else f"{key}={value}"]
        if key.startswith("offload"):
            words.append("offload.optimizer=nvme")
        trial.run(trial.random.choice(["check", "plan", "run"]), "c.toml", "train.steps=1", *words)
        clean(trial)
    name = text[2:].replace("\0", "").replace("/", "") or "x"
    trial.run("run", "c.toml", "train.steps=1", "--out", f"run{name}")
    clean(trial)
    for words in trial.random.sample([["eval"], ["ckpt", "ls"], ["ckpt", "verify"], ["report"], ["run"]], 2):
        trial.run(*words, f"run{name}")
        clean(trial)


def full(trial):
    words = trial.random.choice([["plan", "c.toml"], ["plan", "c.toml", "--json"], ["plan", "c.toml", "--dump"],
                                 ["config", "show", "c.toml"], ["config", "schema"], ["check", "c.toml"], ["doctor"],
                                 ["plugins", "ls"], ["plugins", "ls", "--why"], ["init", "llama", "tiny"], ["--help"],
                                 ["run", "--help"], ["--version"], ["data", "inspect", "c.toml"]])
    status = trial.check(trial.start(*words, by=["/bin/sh", "-c", 'exec "$0" "$@" > /dev/full']))
    if status != 10:
        trial.fail(f"exit {status}, but the output is lost")


def memory(trial):
    bytes_ = trial.random.randrange(20 << 20, 160 << 20)
    words = trial.random.choice([["run", "c.toml", "--out", "run"], ["check", "c.toml"], ["plan", "c.toml"]])
    limit = trial.random.choice(["-v", "-v", "-d"])
    trial.say(f"ulimit {limit} {bytes_ >> 10}")
    # 127: the loader has no room for a library.
    trial.check(trial.start(*words, "device.threads=1",
                            by=["/bin/bash", "-c", f'ulimit {limit} {bytes_ >> 10}; exec "$0" "$@"']),
                {0, 3, 5, 6, 127})


def numbers(folder):
    results = json.loads((folder / "results.json").read_text())
    for measured in ("memory", "timestamp"):
        results.pop(measured, None)
    for key in ("began", "now", "attempt"):
        results.get("engine", {}).pop(key, None)
    return results, (folder / "results.csv").read_bytes(), (folder / "rows.csv").read_bytes()


def analysis(trial):
    words = ["--job", "curvature", "model.plugin=opt", "model.num_hidden_layers=1", "precision.plugin=fp32",
             "optimizer.plugin=adamw"]
    trial.run("analyse", "c.toml", "--out", "whole", *words, allowed={0})
    process = trial.start("analyse", "c.toml", "--out", "part", *words)
    time.sleep(0.2 + 2.5 * trial.random.random())
    process.kill()
    trial.wait(process)
    saves = trial.folder / "part" / "checkpoints"
    files = sorted(p for p in saves.rglob("*") if p.is_file()) if saves.exists() else []
    if files and trial.random.random() < 0.8:
        path = trial.random.choice(files)
        data = bytearray(path.read_bytes())
        at = trial.random.randrange(len(data))
        if trial.random.random() < 0.5:
            data[at] ^= 1 << trial.random.randrange(8)
        else:
            del data[at:]
        path.write_bytes(data)
        trial.say(f"damages {path.relative_to(trial.folder)}")
    for _ in range(2):
        before = sorted(p.name for p in saves.glob("step-*"))
        status = trial.run("analyse", "c.toml", "--out", "part", *words, allowed={0, 9})
        if status == 0 and numbers(trial.folder / "part") != numbers(trial.folder / "whole"):
            trial.fail("the results differ from those of the undisturbed analysis")
        if status == 9 and sorted(p.name for p in saves.glob("step-*")) != before:
            trial.fail("an analysis that was refused has changed")

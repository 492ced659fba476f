#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""guide_test.py BUILD: does what docs/writing-a-plugin.md says, in an empty folder, and looks at the result."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
GUIDE = (ROOT / "docs" / "writing-a-plugin.md").read_text()


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def strange_blocks(text):
    """C in the guide that is in none of the examples."""
    sources = [path.read_text() for path in sorted(EXAMPLES.glob("*.c"))]
    return [block for block in blocks(text, "c") if not any(block in source for source in sources)]


def check_quotes():
    assert len(blocks(GUIDE, "c")) > 5, "the guide has lost its code"
    assert not strange_blocks(GUIDE), f"in the guide, but in no example:\n{strange_blocks(GUIDE)[0]}"
    device = (ROOT / "docs" / "writing-a-device.md").read_text()
    hostile = (ROOT / "tests" / "hostile" / "plugin" / "devices.c").read_text()
    assert blocks(device, "c") and all(block in hostile for block in blocks(device, "c")), "another table of a device"
    observer = (ROOT / "docs" / "observers.md").read_text()
    assert blocks(observer, "c") and not strange_blocks(observer), "another observer than that of the examples"
    # The twin: one changed letter is found.
    assert len(strange_blocks(GUIDE.replace("ENG_OP_SGD, in, 4", "ENG_OP_SGD, in, 3"))) == 1


def run(command, work, expect=0):
    done = subprocess.run(command, cwd=work, shell=isinstance(command, str), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == expect, f"{command}: exit code {done.returncode}\n{text}"
    return text


def losses(directory):
    return [json.loads(line)["loss"] for line in (directory / "metrics.jsonl").read_text().splitlines()]


def train(work, name, *overrides):
    run(["build/tools/engine", "--plugin-path", "my-plugins", "run", *overrides, "--out", name, "train.steps=6",
         "log.every=1"], work)
    return losses(work / name)


def observers(work):
    """docs/observers.md: its plugin sees the rate and the clipping of each step."""
    for block in blocks((ROOT / "docs" / "observers.md").read_text(), "sh"):
        for line in block.splitlines():
            run(line, work)
    (directory,) = (work / "runs" / "scalars").iterdir()
    steps = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 4
    for step in steps:
        seen, norm = step["observed"], step["grad_norm"]
        assert abs(seen["scalars.rate"] / step["lr"] - 1) < 1e-6, step
        assert norm > 1 and abs(seen["scalars.clip"] * norm - 1) < 1e-4, step  # grad_clip is 1


def main():
    check_quotes()
    os.umask(0o022)  # plugin folders that others can write to are refused
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "abi").symlink_to(ROOT / "abi")
        (work / "docs").symlink_to(ROOT / "docs")
        (work / "build").symlink_to(pathlib.Path(sys.argv[1]).resolve())

        commands = [line for block in blocks(GUIDE, "sh") for line in block.splitlines()]
        assert len([line for line in commands if line.startswith("gcc ")]) == 2
        said = "".join(run(line, work) for line in commands)
        assert re.search(r"restart_every +integer, at least 0 +default 0", said), said
        (counting,) = (work / "runs" / "counting").iterdir()
        seen = losses(counting)
        assert seen[0] > 5 and seen[-1] < 0.5, f"it did not learn to count: {seen}"

        # Without restarts it is sgd with Nesterov momentum, bit for bit; a restart at update 4 shows at step 5.
        config = "docs/examples/counting.toml"
        plain = train(work, "plain", config, "optimizer.restart_every=0")
        restarts = train(work, "restarts", config, "optimizer.restart_every=3")
        text = (work / config).read_text().replace('plugin = "nesterov"', 'plugin = "sgd"\nnesterov = true')
        (work / "sgd.toml").write_text(re.sub(r"restart_every.*\n", "", text))
        sgd = train(work, "sgd", "sgd.toml")
        assert plain == sgd, f"{plain} differs from {sgd}"
        assert restarts[:4] == sgd[:4] and restarts[4] != sgd[4], f"{restarts} beside {sgd}"

        # Compares the guide's refusals with the real ones.
        said = run("build/tools/engine --plugin-path my-plugins check docs/examples/counting.toml "
                   "optimizer.restart_every=1", work, expect=2)
        assert "restart_every = 1 leaves no momentum" in said, said
        said = run("build/tools/engine --plugin-path my-plugins check docs/examples/counting.toml "
                   "optimizer.momentum=1.5", work, expect=2)
        assert "must be at least 0.1, at most 0.9999" in said, said
        os.chmod(work / "my-plugins" / "counting.eng.so", 0o757)
        said = run("build/tools/engine --plugin-path my-plugins plugins ls --why", work)
        assert "counting.eng.so: refused: the file has mode 0757 and owner " in said, said
        assert "every user can write it (chmod go-w " in said, said
        observers(work)
    print("the guide holds")


main()

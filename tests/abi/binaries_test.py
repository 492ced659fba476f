#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""binaries_test.py BUILD: the promises of docs/abi-policy.md to plugins that are not built again.

A plugin whose tables end where the first version's do, and one built from headers of a later minor, with more fields
than this engine knows, give the losses of one built from these headers. A field in the middle is noticed. The kept
binaries in frozen/ train. Kinds that accept the draft before train from it, with its tables and a warning."""
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = pathlib.Path(sys.argv[1]).resolve() / "tools" / "engine"
TRAIN = """[train]
steps = 8
micro_batch = 2
sequence_length = 16
[data]
plugin = "counting"
"""
LLAMA = """[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 32
intermediate_size = 64
"""
RATE = "[optimizer]\nlearning_rate = 0.01\n"
CONFIG = LLAMA + TRAIN + '[optimizer]\nplugin = "nesterov"\nlearning_rate = 0.1\n'


def compiled(source, headers, out, expect=True):
    plus = source.suffix == ".cpp"
    command = shlex.split(os.environ.get("CXX", "c++") if plus else os.environ.get("CC", "cc"))
    command += ["-std=c++17" if plus else "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden",
                "-I", str(headers), str(source), "-shared", "-Wl,--version-script=" + str(ROOT / "abi" / "plugin.map"),
                "-lm", "-pthread", "-o", str(out)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert (done.returncode == 0) == expect, f"{source}:\n{done.stdout.decode(errors='replace')}"


def engine(plugins, *words, expect=0):
    done = subprocess.run([ENGINE, "--plugin-path", plugins, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == expect, f"{words}: exit code {done.returncode}\n{text}"
    return text


def losses(plugins, config, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.toml"
        path.write_text(config)
        engine(plugins, "run", path, "--out", pathlib.Path(folder) / "run", "log.every=1", *words)
        return [json.loads(line)["loss"] for line in (pathlib.Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]


def headers_with(work, name, *edits):
    out = work / name / "abi"
    shutil.copytree(ROOT / "abi" / "engine", out / "engine")
    for header, old, new in edits:
        path = out / "engine" / header
        text = path.read_text()
        assert len(re.findall(old, text, re.M | re.S)) == 1, (header, old)
        path.write_text(re.sub(old, new, text, flags=re.M | re.S))
    return out


def built(work, name, headers, expect=True):
    plugins = work / name / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    for source in ("counting.c", "nesterov.c"):
        compiled(ROOT / "docs" / "examples" / source, headers, plugins / (pathlib.Path(source).stem + ".eng.so"), expect)
    return plugins


def check_binaries(work):
    want = losses(built(work, "same", ROOT / "abi"), CONFIG)

    # A later minor: every table that the plugins give has one more function at its end, and it is not NULL.
    more = "  void (*later)(void);\n} "
    later = headers_with(work, "later", ("base.h", r"#define ENG_ABI_MINOR 0", "#define ENG_ABI_MINOR 1"),
                         ("plugin.h", r"\} eng_plugin;", more + "eng_plugin;"),
                         ("data.h", r"\} eng_data;", more + "eng_data;"),
                         ("optimizer.h", r"\} eng_optimizer;", more + "eng_optimizer;"))
    plugins = work / "later" / "plugins"
    plugins.mkdir()
    for source in ("counting.c", "nesterov.c"):
        text = (ROOT / "docs" / "examples" / source).read_text()
        for table in ("{ENG_PLUGIN_INIT,", "{.struct_size = sizeof(eng_data),", "{.struct_size = sizeof(eng_optimizer),"):
            text = text.replace(table, table + " .later = stop,")
        text = text.replace("static const eng_data table", "static void stop(void);\nstatic const eng_data table")
        text = text.replace("static const eng_optimizer table", "static void stop(void);\nstatic const eng_optimizer table")
        (work / "later" / source).write_text(text)
        compiled(work / "later" / source, later, plugins / (pathlib.Path(source).stem + ".eng.so"))
    assert losses(plugins, CONFIG) == want, "a plugin of a later minor"

    # The first version: tables end with what core/registry/registry.hpp requires.
    first = headers_with(work, "first", ("data.h", r"  /\* Does the slow part of create(?:(?!\n\} eng_data;).)*\n\} eng_data;", "} eng_data;"))
    assert losses(built(work, "first", first), CONFIG) == want, "a plugin of the first version"

    # The twin: a field in the middle moves what follows, and the engine does not run it.
    middle = headers_with(work, "middle", ("data.h", r"(typedef struct eng_data \{\n  uint32_t struct_size;\n  uint32_t minor;\n)",
                                           r"\1  void *moved;\n"))
    path = work / "twin.toml"
    path.write_text(CONFIG)
    said = engine(built(work, "middle", middle), "run", path, "--out", work / "twin", expect=3)
    assert "the pointer at byte 8 is NULL" in said, said
    print("binaries of an earlier and of a later minor give the same losses")


def before(header, *cuts):
    """Edits of a header to the draft before: its number, and the ends of the tables that came after it."""
    text = (ROOT / "abi" / "engine" / header).read_text()
    edits = [(header, rf'"{kind}-draft{draft}"', f'"{kind}-draft{int(draft) - 1}"')
             for kind, draft in re.findall(r'_DRAFT "(eng\.\w+/1)-draft(\d+)"', text)]
    return edits + [(header, cut, "") for cut in cuts]


# The draft before of kinds that accept it. Its tables ended where the cuts begin.
DEVICE = [*before("device.h", r"\n  /\* ---- algorithms that were measured(?:(?!\n\} eng_device;).)*"), *before("kernel.h")]
TIER = before("tier.h", r"  /\* Rates of storage(?:(?!\n\} eng_tier_info;).)*\n(?=\} eng_tier_info;)",
              r"\n  /\* ---- what a tier takes besides(?:(?!\n\} eng_tier;).)*")
COMM = [*before("comm.h"), *before("kernel.h")]
PRECISION = before("policy.h")


def check_previous(work):
    template = ROOT / "tools" / "templates"

    def build(name, source, headers):
        plugins = work / name
        plugins.mkdir(parents=True)
        compiled(ROOT / "docs" / "examples" / "counting.c", ROOT / "abi", plugins / "counting.eng.so")
        compiled(source, headers, plugins / "built.eng.so")
        return plugins

    device = template / "device" / "cpp" / "my_thing.cpp"
    on_device = LLAMA + TRAIN + RATE + '[device]\nplugin = "my_thing"\n'
    for name, source, edits, more, words in (
            ("device", device, DEVICE, '[device]\nplugin = "my_thing"\n', []),
            ("comm", template / "comm" / "cpp" / "my_thing.cpp", COMM, '[comm]\nplugin = "my_thing"\nport = 29531\n', ["--ranks", "2"]),
            ("precision", template / "precision" / "cpp" / "my_thing.cpp", PRECISION, '[precision]\nplugin = "my_thing"\n', []),
            ("tier", ROOT / "tests" / "abi" / "memory_tier.c", TIER, '[offload]\noptimizer = "memory"\n', [])):
        today = build(name + " today", source, ROOT / "abi")
        old = build(name + " before", source, headers_with(work, "headers of " + name, *edits))
        kind = f"eng.{name}/1-draft"
        assert f"built from draft {kind}" in engine(old, "plugins", "ls", "--why"), kind
        assert "built from draft" not in engine(today, "plugins", "ls", "--why"), kind
        want, found = (losses(plugins, LLAMA + TRAIN + RATE + more, *words) for plugins in (today, old))
        assert want == found and len(want) == 8, f"{name}: {want} today, {found} from the draft before"

    # A kernel of an op that has changed since is not used: the device leaves the op to its fallback.
    other = work / "rope.cpp"
    text, op = device.read_text(), "{sizeof(eng_kernel), 0, ENG_OP_ADD,"
    assert op in text
    other.write_text(text.replace(op, op.replace("ADD", "ROPE")))
    path = work / "rope.toml"
    path.write_text(on_device)
    for age, headers, left in (("today", ROOT / "abi", False), ("before", work / "headers of device" / "abi", True)):
        plugins = build("rope " + age, other, headers)
        said = re.search("device my_thing leaves .*", " ".join(engine(plugins, "plan", path).split()))[0]
        assert ("eng.rope/1" in said) == left and "eng.add/1" in said, (age, said)
    assert losses(plugins, on_device) == losses(work / "device today", on_device)
    print("kinds that accept the draft before train from it")


def check_kept(work):
    if platform.machine() != "x86_64":
        print("skipped: the kept binaries are for x86-64")
        return
    found = []
    for version in sorted(path for path in (ROOT / "tests" / "abi" / "frozen" / "x86_64").iterdir()):
        plugins = work / "kept" / version.name
        plugins.mkdir(parents=True)
        for path in version.iterdir():
            shutil.copyfile(path, plugins / path.name)
        config = work / "kept.toml"
        config.write_text(LLAMA + TRAIN.replace("counting", "squares") + 'weighted = true\n' + RATE + '[schedule]\nkind = "halving"\n')
        out = work / "kept" / ("run of " + version.name)
        engine(plugins, "run", config, "--out", out, "log.every=1")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert [line["lr"] for line in lines] == [0.01 / 2 ** (k // 2) for k in range(8)], lines
        found.append([line["loss"] for line in lines])
        print(f"kept binaries of {version.name}: {found[-1][0]:.4f} -> {found[-1][-1]:.4f}")
    assert len(found) == 2 and found[0] == found[1], found


def main():
    os.umask(0o022)
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        check_binaries(pathlib.Path(folder))
        check_previous(pathlib.Path(folder))
        check_kept(pathlib.Path(folder))


main()

# SPDX-License-Identifier: Apache-2.0
"""Machine code of the kernels, read from the built plugins by cuobjdump and nvdisasm: registers, spills, shared
memory, tensor-core and fused multiply-add instructions. tests/cuda/ladder/sass.json has what is expected."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import flow
from host import Failed, call, together
from units import ROOT, TARGETS

TABLE = ROOT / "tests/cuda/ladder/sass.json"
VERSION = "13.5.37"
WHEELS = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")
# Kernel (a part of its name) -> why it may keep registers in memory.
SPILLS = {
    "sequence::FillOf": "four draws of one counter, and the argument reduction of cos and sin",
    "step::FoldAnyOf": "the stack of finished subtrees, as deep as the number of ranks makes it",
}
COLUMNS = ("registers", "local", "shared", "tensor", "ffma", "instructions")


def tools():
    """The folder of cuobjdump and nvdisasm; installs the pinned wheels into a cache if they are not there."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / f"engine/cuda-tools-{VERSION}"
    found = lambda name: next(iter(sorted(cache.glob(f"**/bin/{name}"))), None)  # noqa: E731
    if not found("cuobjdump") or not found("nvdisasm"):
        call([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", cache] + [f"{w}=={VERSION}" for w in WHEELS])
    if not found("cuobjdump") or not found("nvdisasm"):
        raise Failed(f"no cuobjdump and nvdisasm in {cache}, though the wheels {VERSION} are installed")
    for name in ("cuobjdump", "nvdisasm"):
        found(name).chmod(0o755)
    return found("cuobjdump"), found("nvdisasm").parent


def measured(plugin):
    """{target: {kernel: {column: number}}} of one built plugin."""
    cuobjdump, nvdisasm = tools()
    env = {"PATH": f"{nvdisasm}:{os.environ['PATH']}"}
    return dict(together([lambda t=t: (f"sm_{t}", measured_for(cuobjdump, env, f"sm_{t}", plugin)) for t in TARGETS]))


def measured_for(cuobjdump, env, arch, plugin):
    """{kernel: {column: number}} for one target, and what flow.passes says of the kernel."""
    usage = call([cuobjdump, "-arch", arch, "-res-usage", plugin], env)
    kernels = collections.OrderedDict()
    for name, line in re.findall(r"Function (\S+?):\s*\n\s*(REG:.*)", usage):
        numbers = dict(re.findall(r"(\w+):(\d+)", line))
        kernels[name] = {"registers": int(numbers["REG"]), "shared": int(numbers.get("SHARED", 0))}
    if not kernels:
        raise Failed(f"{plugin} has no kernels for {arch}")
    counts = collections.defaultdict(collections.Counter)
    for part in re.split(r"\n\s*Function : ", call([cuobjdump, "-arch", arch, "-sass", plugin], env))[1:]:
        name, _, text = part.partition("\n")  # a kernel of two files is there twice
        code = [one for line in text.splitlines() if (one := flow.parse(line))]
        counts[name.strip()].update(one.head for one in code)
        kernels[name.strip()] |= flow.passes(code)
    for name, row in kernels.items():
        n = counts[name]
        row["local"] = n["LDL"] + n["STL"]
        row["tensor"] = sum(n[k] for k in n if k in ("HMMA", "HGMMA", "UTCHMMA", "IMMA"))
        row["ffma"] = sum(n[k] for k in n if k in ("FFMA", "FFMA2", "DFMA", "HFMA2"))
        row["instructions"] = sum(n.values()) - n["NOP"]
    names = call(["c++filt"] + list(kernels)).splitlines()
    return dict(sorted(zip(names, kernels.values()), key=lambda pair: pair[0]))


def compare(want, got):
    """The faults: a column or the number of instructions differs from the table; a kernel is missing or unlisted."""
    wrong = []
    for arch in sorted(set(want) | set(got)):
        have, had = got.get(arch, {}), want.get(arch, {})
        for name in sorted(set(have) | set(had)):
            if name not in had:
                wrong.append(f"{arch} {name}: not in the table")
            elif name not in have:
                wrong.append(f"{arch} {name}: in the table, but not in the plugin")
            else:
                for column in COLUMNS[:-1]:
                    if have[name][column] != had[name][column]:
                        wrong.append(f"{arch} {name}: {column} {had[name][column]} -> {have[name][column]}")
                if abs(have[name]["instructions"] - had[name]["instructions"]) > 0.02 * had[name]["instructions"]:
                    wrong.append(f"{arch} {name}: {had[name]['instructions']} -> {have[name]['instructions']} instructions")
    return wrong


def spilled(got):
    return [f"{arch} {name}: {row['local']} accesses of local memory" for arch, kernels in got.items()
            for name, row in kernels.items() if row["local"] and not any(part in name for part in SPILLS)]


def nvcc_version():
    text = subprocess.run(["nvcc", "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.search(r"V([\d.]+)", text)[1]


def load():
    return json.loads(TABLE.read_text()) if TABLE.exists() else {"nvcc": "", "plugins": {}}


def save(plugins):
    rows = []
    for plugin, archs in plugins.items():
        body = ",\n".join(f"  {json.dumps(arch)}: {{\n" + ",\n".join(
            f"   {json.dumps(n)}: {json.dumps({c: r[c] for c in COLUMNS})}" for n, r in k.items()) + "\n  }"
            for arch, k in archs.items())
        rows.append(f" {json.dumps(plugin)}: {{\n{body}\n }}")
    TABLE.write_text(f'{{"nvcc": "{nvcc_version()}", "plugins": {{\n' + ",\n".join(rows) + "\n}}\n")

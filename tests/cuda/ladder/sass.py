# SPDX-License-Identifier: Apache-2.0
"""Three properties of the kernels, read from the built plugins by cuobjdump and nvdisasm: no register is kept in memory,
attention and the scan of Mamba-2 in 16 bits multiply on tensor cores, and nothing is contracted that an op rounds twice.

Spills and tensor cores: the machine code of every target. Contraction: the PTX in the plugins, where a division or a root
is one instruction and every fused multiply-add is one that the source or a function of CUDA wrote, or a contraction.
planted.cu has a kernel that breaks each property when it is compiled so, and keeps all of them otherwise."""
import collections
import os
import pathlib
import re
import subprocess
import sys

from host import Failed, call, together
from units import ROOT, TARGETS

VERSION = "13.5.37"
WHEELS = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")
# The keys of these tables are parts of a kernel's name.
SPILLS = {  # why it may keep registers in memory
    "sequence::FillOf": "four draws of one counter, and the argument reduction of cos and sin",
    "step::FoldAnyOf": "the stack of finished subtrees, as deep as the number of ranks makes it",
}
TENSOR = ("attention::forward_tile", "attention::grad_key_tile", "attention::grad_query_tile", "fp8::on_cuda::multiply",
          "mamba::on_cuda::ssd_")
WARP_GROUP = ("attention::grad_by_wgmma",)  # by wgmma on sm_90a; nothing but a trap elsewhere
FUSED = {  # why it has fused multiply-adds
    "adamw8bit::on_cuda::update": "the op's formula: the moments",
    "attention::forward": "products; exponentials, tanh",
    "attention::grad_": "products; exponentials, tanh",
    "attention::row_deltas": "products",
    "cross_entropy::softmax": "exponentials, a logarithm, tanh",
    "elementwise::Activation": "exponentials, the polynomial of GELU",
    "elementwise::Gated": "exponentials, the polynomial of GELU",
    "elementwise::Softcap": "tanh",
    "mamba::on_cuda::gated_norm": "sums of squares and of products; exponentials",
    "mamba::on_cuda::ssd_": "products; exponentials",
    "moe::on_cuda::choose_by_sigmoid": "exponentials in f64",
    "moe::on_cuda::choose_experts": "exponentials",
    "moe::on_cuda::GatedOf": "exponentials, erfc",
    "moe::on_cuda::gated_grad": "a sum of products; exponentials, erfc",
    "moe::on_cuda::multiply": "products",
    "moe::on_cuda::route_grad": "exponentials, a logarithm",
    "moe::on_cuda::sigmoid_grad": "exponentials in f64",
    "moe::on_cuda::sum_load": "exponentials, a logarithm",
    "norm::": "sums of squares and of products",
    "on_cuda::DtBiasOf": "exponentials, logarithms",
    "on_cuda::HandOver": "the recurrence of the scan",
    "on_cuda::conv<": "products; exponentials",
    "on_cuda::conv_grad<": "products; exponentials",
    "on_cuda::scan": "the recurrence of the scan; exponentials",
    "optimizer::RoundedUpdateOf": "the op's formula: moments, momentum",
    "optimizer::UpdateOf": "the op's formula: moments, momentum",
    "preference::on_cuda::in_order": "exponentials, logarithms and divisions in f64",
    "product::multiply": "products",
    "sequence::FillOf": "logarithms, cos and sin",
    "step::sum_squares": "the op's formula: sums of squares",
    "vocabulary::LossOf": "exponentials, a logarithm",
}
TENSOR_CORES = ("HMMA", "HGMMA", "UTCHMMA", "IMMA")
FLOAT = r"(?:\.(?:ftz|sat))*\.(?:f32|f64|f16|f16x2|bf16|bf16x2)\b"
FUSES = re.compile(r"\b(?:fma|mad)\.(?:r[nzmp])(?:\.(?:ftz|sat|relu))*\.(?:f|bf)\d")
# ptxas may contract what has no mode of rounding.
LOOSE = re.compile(r"\b(?:(?:add|sub|mul)" + FLOAT + r"|mad" + FLOAT + ")")


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


def listing(file, *words):
    cuobjdump, nvdisasm = tools()
    return call([cuobjdump, *words, file], {"PATH": f"{nvdisasm}:{os.environ['PATH']}"})


def named(found):
    """A dictionary with the kernels' names in C++ as keys."""
    names = call(["c++filt", *found]).splitlines()
    return dict(sorted(zip(names, found.values()), key=lambda pair: pair[0]))


def machine_code(file, arch):
    """{kernel: {instruction: how often}} for one target."""
    found = collections.defaultdict(collections.Counter)
    for part in re.split(r"\n\s*Function : ", listing(file, "-arch", arch, "-sass"))[1:]:
        name, _, text = part.partition("\n")  # a kernel of two files is there twice
        found[name.strip()].update(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)", text))
    if not found:
        raise Failed(f"{file} has no kernels for {arch}")
    return named(found)


def ptx(file):
    """{kernel: (fused multiply-adds, operations that ptxas may contract)}"""
    found = {}
    for name, text in re.findall(r"^\.(?:visible |weak )?\.?(?:entry|func)[^\n]*?([\w$]+)\s*\((.*?)^\}", listing(file, "-ptx"),
                                 re.M | re.S):
        found[name] = len(FUSES.findall(text)), len(LOOSE.findall(text))
    if not found:
        raise Failed(f"{file} has no PTX")
    return named(found)


def read(file, targets=TARGETS):
    """The machine code for each target, and under "ptx" the PTX, of a plugin or an object file."""
    archs = [f"sm_{t}" for t in targets]
    codes = together([lambda a=a: machine_code(file, a) for a in archs] + [lambda: ptx(file)])
    return dict(zip([*archs, "ptx"], codes))


def on_tensor_cores(row):
    return any(row[k] for k in TENSOR_CORES)


def part_of(table, name):
    return next((part for part in table if part in name), None)


def judge(code):
    """{property: the kernels without it, and why}"""
    spills, scalar, contracted = [], [], []
    for arch, kernels in code.items():
        for name, row in kernels.items():
            if arch == "ptx":
                fused, loose = row
                if fused and not part_of(FUSED, name):
                    contracted.append(f"{name}: {fused} fused multiply-adds, and no reason for them in FUSED of sass.py")
                if loose:
                    contracted.append(f"{name}: {loose} operations without a mode of rounding: compile with -fmad=false")
                continue
            if (local := row["LDL"] + row["STL"]) and not part_of(SPILLS, name):
                spills.append(f"{arch} {name}: {local} accesses of local memory")
            if part_of(TENSOR, name) and "<float" not in name.split("(")[0] and not on_tensor_cores(row):
                scalar.append(f"{arch} {name}: no instruction of tensor cores")
            if part_of(WARP_GROUP, name) and bool(row["HGMMA"]) != (arch == "sm_90a"):
                scalar.append(f"{arch} {name}: {row['HGMMA']} products of a warp group")
    return {"no spills": spills, "tensor cores": scalar, "nothing contracted": contracted}


def unused(names):
    """Keys of the tables that are in no kernel's name."""
    return [part for table in (SPILLS, TENSOR, WARP_GROUP, FUSED) for part in table if not any(part in name for name in names)]


# ---- planted faults ----

# Options for planted.cu -> the property that they break.
PLANTED = {("-fmad=false",): None, ("-fmad=false", "-maxrregcount=32"): "no spills", ("-fmad=true",): "nothing contracted",
           ("-fmad=false", "-DSCALAR"): "tensor cores"}


def planted(folder):
    """[(what is planted, what is wrong with `judge`, or "")]"""
    folder.mkdir(parents=True, exist_ok=True)

    def one(flags, broken):
        out = folder / ("planted" + "".join(flags).replace("=", "-") + ".o")
        call(["nvcc", "-std=c++20", "-O3", "-gencode", "arch=compute_90a,code=sm_90a", "-gencode",
              "arch=compute_100,code=compute_100", *flags, "-c", "-o", out, ROOT / "tests/cuda/ladder/planted.cu"])
        said = [what for what, faults in judge(read(out, ("90a",))).items() if faults]
        wrong = "" if said == [broken] * bool(broken) else f"{broken or 'nothing'} should be said, not {said}"
        return f"planted: {' '.join(flags)}", wrong

    return together([lambda f=f, b=b: one(f, b) for f, b in PLANTED.items()])


def nvcc_version():
    text = subprocess.run(["nvcc", "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.search(r"V([\d.]+)", text)[1]

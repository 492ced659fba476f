#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_test.py: tools/dev and tools/cuda-toolkit on a machine with a driver and nothing else. Scripts stand for nvidia-smi,
meson and pip, whose wheels are small ones.

With --download: the wheels that tools/cuda-toolkit names, from PyPI into the cache, and one file of kernels compiled by
them for one architecture. Neither needs a GPU."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from dev_test import ROOT, case, expect

PACKAGES = (ROOT / "tools" / "dev").read_text().split("build_packages=(")[1].split(")")[0].split()
NVCC = f"#!{shutil.which('bash')}\necho Cuda compilation tools, release 13.0, V13.0.88\n"
WHEELS = {
    "nvidia_cuda_nvcc": {"nvidia/cu13/bin/nvcc": NVCC, "nvidia/cu13/bin/crt/link.stub": "",
                         "nvidia_cuda_nvcc.dist-info/licenses/License.txt": "its licence"},
    "nvidia_nvvm": {"nvidia/cu13/nvvm/bin/cicc": NVCC, "nvidia/cu13/nvvm/libdevice/libdevice.10.bc": ""},
    "nvidia_cuda_runtime": {"nvidia/cu13/lib/libcudart.so.13": "", "nvidia/cu13/include/cuda_runtime.h": ""},
    "nvidia_cudnn_cu13": {"nvidia/cudnn/lib/libcudnn.so.9": "", "nvidia/cudnn/include/cudnn.h": ""},
    "nvidia_nccl_cu13": {"nvidia/nccl/lib/libnccl.so.2": "", "nvidia/nccl/include/nccl.h": "", "nvidia/../escaped": ""},
}


def with_gpus(machine, *capabilities):
    machine.command("nvidia-smi", f"printf '%s\\n' {' '.join(capabilities)}" if capabilities
                    else "echo NVIDIA-SMI has failed; exit 9")


def with_pip(machine, folder):
    """`python3 -m pip download` copies small wheels."""
    store = folder / "store"
    store.mkdir()
    for name, members in WHEELS.items():
        with zipfile.ZipFile(store / f"{name}-1-py3-none-any.whl", "w") as wheel:
            for member, text in members.items():
                wheel.writestr(member, text)
    (machine.bin / "python3").unlink()
    (machine.bin / "cp").symlink_to(shutil.which("cp"))
    machine.command("python3", f'''[ "$1 $2" = "-m pip" ] || exec {sys.executable} "$@"
echo "pip $3" >> {machine.log}
[ "$3" = download ] || exit 0
while [ "$1" != --dest ]; do shift; done
mkdir -p "$2" && cp {store}/*.whl "$2" && exit ${{PIP_FAILS:-0}}''')


def toolkit(machine, *words, **environment):
    """Exit code, the last line that tools/cuda-toolkit said, all of it, and what it ran."""
    machine.log.write_text("")
    done = subprocess.run([machine.tree / "tools" / "cuda-toolkit", *words], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={"PATH": str(machine.bin), "HOME": str(machine.tree), **environment})
    return done.returncode, (done.stdout.splitlines() or [""])[-1], done.stdout, machine.log.read_text()


def architectures(machine):
    for capabilities, want in ((("9.0",), "90a"), (("8.0", "8.0"), "80"), (("12.0", "8.9", "8.6"), "86,89,120"),
                               (("10.0", "9.0"), "90a,100"), (("7.0", "8.0"), "80")):
        with_gpus(machine, *capabilities)
        code, last, said, _ = toolkit(machine, "--arch")
        expect(code == 0 and last == want, capabilities, said)
    with_gpus(machine, "7.0")
    code, last, _, _ = toolkit(machine, "--arch")
    expect(code == 3 and "compute capability 7.0: the kernels of device cuda need 8.0 or later" in last, last)
    with_gpus(machine, "N/A")
    code, last, _, _ = toolkit(machine, "--arch")
    expect(code == 3 and '"N/A" is no compute capability' in last, last)
    with_gpus(machine)
    code, last, _, _ = toolkit(machine, "--arch")
    expect(code == 3 and "nvidia-smi finds no GPU" in last and "NVIDIA-SMI has failed" in last, last)


def wheels(machine):
    """A toolkit of wheels; returns its folder."""
    folder = machine.tree / ".cache" / "engine"
    code, last, said, ran = toolkit(machine, CUDA_HOME="", PIP_FAILS="1")
    expect(code == 3 and "the wheels could not be downloaded" in last and list(folder.iterdir()) == [], said)
    code, last, said, ran = toolkit(machine, CUDA_HOME="")
    made = pathlib.Path(last)
    expect(code == 0 and made.parent == folder and list(folder.iterdir()) == [made], said)
    expect(ran == "pip download\n", ran)
    for tool in ("bin/nvcc", "nvvm/bin/cicc"):
        expect(os.access(made / tool, os.X_OK), tool)
    for name in ("nvvm/libdevice/libdevice.10.bc", "bin/crt/link.stub", "include/cuda_runtime.h", "include/cudnn.h",
                 "include/nccl.h", "dist-info/nvidia_cuda_nvcc.dist-info/licenses/License.txt"):
        expect((made / name).is_file(), name)
    for name, real in (("cudart", 13), ("cudnn", 9), ("nccl", 2)):
        expect((made / "lib64" / f"lib{name}.so").resolve().name == f"lib{name}.so.{real}", name)
    expect(not list(machine.tree.rglob("escaped")), "a wheel wrote outside of its folder")
    code, last, said, ran = toolkit(machine, CUDA_HOME="")
    expect(code == 0 and said == f"{made}\n" and ran == "", said, ran)
    expect(toolkit(machine, "--where", CUDA_HOME="")[1] == str(made))
    expect(toolkit(machine, CUDA_HOME=str(made))[1] == str(made))
    code, last, _, _ = toolkit(machine, CUDA_HOME="/nowhere")
    expect(code == 3 and "CUDA_HOME is /nowhere, which has no bin/nvcc of CUDA 13" in last, last)
    return made


def runs(machine, made):
    """`tools/dev run` sets up a build for the GPU; meson, which is a script here, ends it."""
    with_gpus(machine, "8.9")
    options = f"-Dcuda=enabled -Dtoolkit={made} -Dgpu_arch=89 -Dcpu_isas=native\n"
    (machine.tree / "cuda.toml").write_text('[device]\n  plugin = "cuda"  # a GPU\n')
    (machine.tree / "cpu.toml").write_text('[device]\nplugin = "cpu"\n# plugin = "cuda"\n')
    (machine.tree / "a-run").mkdir()
    shutil.copy(machine.tree / "cuda.toml", machine.tree / "a-run" / "config.resolved.toml")
    for words in (("cpu.toml", "device.plugin=cuda"), ("cuda.toml",), ("a-run",), ("cpu.toml", 'device.plugin="cuda"')):
        code, said, ran = machine.dev("run", *words, CUDA_HOME="")
        expect(code != 0 and "meson setup build-cuda" in ran and options in ran, words, said, ran)
    for words in (("cpu.toml",), ("cuda.toml", "device.plugin=cpu")):
        code, said, ran = machine.dev("run", *words, CUDA_HOME="")
        expect("meson setup build " in ran and "cuda=enabled" not in ran, words, said, ran)
    code, said, ran = machine.dev("build", "--cuda", CUDA_HOME="")
    expect(f"-Dcuda=enabled -Dtoolkit={made} -Dgpu_arch=all\n" in ran, said, ran)
    code, said, ran = machine.dev("build", "--cuda=native", CUDA_HOME="")
    expect("-Dgpu_arch=89\n" in ran, said, ran)
    code, said, ran = machine.dev("package", "--cuda", CUDA_HOME="")
    expect("meson setup build-package-cuda " in ran and f"-Dcuda=enabled -Dtoolkit={made} -Dnvidia_wheels=true\n" in ran, said, ran)
    code, said, ran = machine.dev("package", "--cuda=native", CUDA_HOME="")
    expect(code == 3 and "packages have the kernels of all GPUs" in said and "meson" not in ran, said, ran)
    with_gpus(machine)
    code, said, ran = machine.dev("run", "cuda.toml", CUDA_HOME="")
    expect(code == 3 and "nvidia-smi finds no GPU" in said and "device.plugin=cpu trains without a GPU" in said, said)
    expect("meson" not in ran, ran)


def built(machine, made):
    """A build folder keeps its toolkit, and gets kernels for the GPU that is here now."""
    with_gpus(machine, "8.9")
    about = machine.tree / "build-cuda" / "meson-info"
    about.mkdir(parents=True)
    (machine.tree / "build-cuda" / "build.ninja").write_text("")
    (about / "meson-info.json").write_text(json.dumps({"directories": {"source": str(machine.tree)}}))
    machine.command("ninja", f'echo "ninja $*" >> {machine.log}')

    def has(**options):
        (about / "intro-buildoptions.json").write_text(json.dumps([{"name": k, "value": v} for k, v in options.items()]))
    for arch, changed in (("all", False), ("89", False), ("90a", True)):
        has(toolkit=str(made), gpu_arch=arch, cpu_isas="native")
        code, said, ran = machine.dev("run", "cuda.toml")
        expect(("meson configure build-cuda -Dgpu_arch=89" in ran) == changed, arch, said, ran)
    has(toolkit="/gone", gpu_arch="89", cpu_isas="native")
    code, said, ran = machine.dev("run", "cuda.toml")
    expect(code == 3 and "is built by CUDA in /gone, which is not there" in said, code, said)


def download():
    done = subprocess.run([ROOT / "tools" / "cuda-toolkit"], env={**os.environ, "CUDA_HOME": ""}, stdout=subprocess.PIPE,
                          text=True, check=True)
    made = pathlib.Path(done.stdout.strip())
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([made / "bin" / "nvcc", "-std=c++20", "-gencode", "arch=compute_90a,code=sm_90a", "-I", ROOT / "abi",
                        "-cudart", "none", "-c", ROOT / "plugins/cuda/kernels/layout.cu", "-o", f"{work}/layout.o"], check=True)
    for name in ("cudart", "cublasLt", "cudnn", "nccl"):
        expect((made / "lib64" / f"lib{name}.so").exists(), name)
    print("passed")


def main():
    if sys.argv[1:] == ["--download"]:
        return download()
    folder, machine = case("a machine with a driver and nothing else", 0, installed=" ".join(PACKAGES + ["python3-pip"]))
    with_pip(machine, folder)
    architectures(machine)
    made = wheels(machine)
    runs(machine, made)
    built(machine, made)
    shutil.rmtree(folder)
    print("passed")
    return None


main()

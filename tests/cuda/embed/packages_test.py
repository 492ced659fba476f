#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packages_test.py BUILD LIBRARY ...: the wheels and the tree of `tools/dev package --cuda` find CUDA's libraries in
NVIDIA's wheels, and say what is missing. The libraries are the software CUDA runtime (CPU), laid out as those wheels are;
LD_LIBRARY_PATH is not set. The plugins are those of a build folder."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
from packing import NVIDIA_FOLDERS, cuda_plugins, cuda_run_path, cuda_wheels, run, run_path, set_run_path  # noqa: E402

PLACES = {"libcudart.so.13": NVIDIA_FOLDERS[0], "libcublasLt.so.13": NVIDIA_FOLDERS[0], "libcudnn.so.9": NVIDIA_FOLDERS[1],
          "libnccl.so.2": NVIDIA_FOLDERS[2]}
LIBRARIES = {path.name: path for path in map(pathlib.Path, sys.argv[2:])}
CONFIG = f"""
[model]
plugin = "llama"
vocab_size = 256
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
intermediate_size = 48
[data]
plugin = "text"
paths = ["{ROOT}/LICENSE"]
tokenizer = "bytes"
[train]
steps = 2
micro_batch = 2
sequence_length = 16
[optimizer]
plugin = "adamw"
[device]
plugin = "cuda"
attention = "own"  # the cuDNN here computes nothing
"""


def expect(right, *said):
    if not right:
        sys.exit("\n".join(map(str, ("failed:", *said))))


def engine(program, *words):
    """Exit code and output. The loader does not ask its cache, which may know a CUDA of this machine."""
    loader = re.search(r"interpreter: (\S+)\]", run("readelf", "-lW", program))[1]
    plugins = next(program.parents[1].rglob("engine/plugins/1"))
    environment = {name: os.environ[name] for name in ("PATH", "SOFTCUDA_TWINS")}
    done = subprocess.run([loader, "--inhibit-cache", program, "--plugin-path", plugins, *words], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def with_libraries(folder):
    for name, path in LIBRARIES.items():
        place = folder / PLACES[name]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place / name)


def finds(program, top, install, work):
    """The plugins of a package without and with libraries in the folder `top`."""
    config, out = work / "config.toml", work / f"run-{top.name}"
    config.write_text(CONFIG)
    code, said = engine(program, "doctor")
    expect(code == 0, said)
    missing = "libcudart.so.13 and libcublasLt.so.13 are in none of these: "
    expect(missing in said and ", ".join(f"{top}/{name}" for name in NVIDIA_FOLDERS) + ", the folders of the system" in said, said)
    expect(f"To install: {install} {' '.join(cuda_wheels())}\n" in said, install, said)
    code, said = engine(program, "check", config)
    expect(code == 3 and missing in said and f"To install: {install} nvidia-" in said, code, said)
    code, said = engine(program, "plugins", "info", "cuda")
    expect(code == 0 and "attention_workspace" in said and missing in said, said)
    with_libraries(top)
    for words in (("doctor",), ("plugins", "info", "cuda")):
        code, said = engine(program, *words)
        expect(code == 0 and "software CUDA runtime (CPU)" in said, said)
        for line in (rf"CUDA runtime 13\.\d+: {top}/nvidia/cu13/lib/libcudart\.so\.13",
                     rf"cuBLASLt 13\.\d+\.\d+: {top}/nvidia/cu13/lib/libcublasLt\.so\.13",
                     rf"cuDNN 9\.19\.0: {top}/nvidia/cudnn/lib/libcudnn\.so\.9",
                     rf"NCCL 2\.\d+\.\d+: {top}/nvidia/nccl/lib/libnccl\.so\.2" if "libnccl.so.2" in LIBRARIES else "NCCL: "):
            expect(re.search(line, said), line, said)
    code, said = engine(program, "run", config, "--out", out)
    expect(code == 0 and (out / "metrics.jsonl").stat().st_size > 0, code, said)


def wheels(tree, work):
    """The two wheels, as pip installs them into an environment; returns the program and the folder of packages."""
    site = work / "env" / "lib" / "python3.11" / "site-packages"
    (work / "env" / "bin").mkdir(parents=True)
    (work / "env" / "bin" / "python3").write_text("")
    made = [pathlib.Path(run(ROOT / "tools/python/make-wheel", *words, tree, work).strip()) for words in ([], ["--cuda"])]
    again = pathlib.Path(run(ROOT / "tools/python/make-wheel", "--cuda", tree, work / "again").strip())
    expect(again.name == made[1].name and again.read_bytes() == made[1].read_bytes(), "made twice, the bytes differ")
    names = []
    for wheel in made:
        with zipfile.ZipFile(wheel) as archive:
            names.append({n for n in archive.namelist() if ".dist-info/" not in n})
            archive.extractall(site)
    expect(not names[0] & names[1], "both wheels have", names[0] & names[1])
    expect(sorted(pathlib.Path(n).name for n in names[1]) == sorted(p.name for p in cuda_plugins(tree)), names[1])
    expect({path.name for path in cuda_plugins(site)} >= {"cuda.eng.so", "mamba-cuda.eng.so", "optim-cuda.eng.so"}, names[1])
    plain, cuda = (next(site.glob(f"{name}-*.dist-info/METADATA")).read_text() for name in ("engine", "engine_cuda13"))
    version = re.search(r"^Version: (\S+)$", plain, re.M)[1]
    expect(f"Provides-Extra: cuda\nRequires-Dist: engine-cuda13=={version} ; extra == 'cuda'\n" in plain, plain)
    expect(all(f"Requires-Dist: {one}\n" in cuda for one in (f"engine=={version}", *cuda_wheels())), cuda)
    program = site / "engine" / "native" / "bin" / "engine"
    program.chmod(0o755)
    return program, site


def main():
    expect(BUILD.joinpath("build.ninja").exists(), BUILD)
    options = {o["name"]: o["value"] for o in json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder).resolve()
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", work / "installed", "--tags", "runtime")
        tree = work / "installed" / options["prefix"].lstrip("/")
        depth = len(pathlib.PurePath(options["libdir"]).parts)
        want = cuda_run_path("$ORIGIN/../../.." + "/.." * (depth + 2))
        for path in cuda_plugins(tree):
            # An installed plugin finds the toolkit; one of the build folder has room for the path of a wheel.
            other = f"$ORIGIN/../../libs:{options['toolkit']}/lib64"
            expect(run_path(path) == (want if options["nvidia_wheels"] else other), run_path(path))
            shutil.copy(next(BUILD.glob(f"plugins/*/{path.name}")), path)
            run("strip", path)
            set_run_path(path, want)
            expect(run_path(path) == want, run_path(path))
        program, site = wheels(tree, work)
        finds(program, site, f"{work}/env/bin/python3 -m pip install", work)
        for path in cuda_plugins(tree):
            set_run_path(path, cuda_run_path("$ORIGIN/../.."))
        top = next(tree.rglob("engine/plugins/1")).parents[1]
        finds(tree / "bin" / "engine", top, f"python3 -m pip install --target {top}", work)
    print("passed")


main()

# SPDX-License-Identifier: Apache-2.0
"""The units of the ladder: every folder of CUDA kernels, and how its kernels run on the host.

A new folder of kernels is taken in by a new Unit; a new .cu in a listed folder is taken in by itself. A .cu in no
listed folder is an error."""
import dataclasses
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TARGETS = ("80", "90a", "100")


@dataclasses.dataclass(frozen=True)
class Unit:
    name: str
    kernels: str  # folder of .cu files
    glue: tuple  # sources that make a plugin of them on the host
    built: str  # the plugin that ships, in the build with nvcc
    plugin: str  # where the tests look for that plugin, in ENGINE_PLUGIN_DIR/..
    tests: tuple  # sources of the Catch2 program that runs them
    # Test cases that reach the kernels of one file, as patterns of Catch2; of a file that is not here: all.
    cases: dict = dataclasses.field(default_factory=dict)
    device: str = ""  # the unit whose plugin is the device of these kernels; "": this one

    def sources(self):
        return sorted((ROOT / self.kernels).glob("*.cu"))


ORDER = "tests/cuda/emulated/order.cpp"
UNITS = (
    Unit("cuda", "plugins/cuda/kernels", ("tests/cuda/emulated/plugin.cpp", ORDER), "plugins/cuda/cuda.eng.so",
         "tests/cuda/emulated/emulated.eng.so",
         ("tests/cuda/kernels/attention_test.cpp", "tests/cuda/kernels/elementwise_test.cpp",
          "tests/cuda/kernels/exact_test.cpp", "tests/cuda/kernels/frozen_test.cpp",
          "tests/cuda/kernels/layers_test.cpp", "tests/cuda/kernels/layout_test.cpp",
          "tests/cuda/kernels/model_test.cpp", "tests/cuda/kernels/packed_test.cpp",
          "tests/cuda/kernels/sparse_test.cpp", "tests/cuda/kernels/vocabulary_test.cpp",
          "tests/cuda/kernels/wgmma_test.cpp",
          "tests/cuda/kernels/windows_test.cpp"),
         {"attention": "*attention*", "attention_documents": "*packed*,*documents*,*window*", "attention_forward": "*attention*",
          "attention_grad_key": "*attention*", "attention_grad_query": "*attention*",
          "attention_wgmma": "*wgmma*", "norm": "*norm*",
          "cross_entropy": "*cross-entropy*,*log-probabilities*,*capped logits*", "layout": "*layout*",
          "packed": "*frozen weights*",
          "product": "*linear*,*cross-entropy*", "sequence": "*embedding*,*dropout*",
          "step": "*step*,*fold*,*loss scale*", "optimizer": "*adamw*", "elementwise": "*add*,*scale*",
          "vocabulary": "*parts of a vocabulary*"}),
    Unit("mamba", "plugins/mamba/cuda", ("plugins/mamba/cuda/plugin.cpp", ORDER), "plugins/mamba/mamba-cuda.eng.so",
         "tests/cuda/emulated/emulated-mamba.eng.so", ("tests/cuda/kernels/mamba_test.cpp", "tests/cuda/kernels/ssd_test.cpp"),
         {"conv": "*conv1d*", "norm": "*gated norm*", "scan": "*selective_scan*", "scan_grad": "*selective_scan*",
          "ssd": "*scan of Mamba-2*", "ssd_grad": "*scan of Mamba-2*"}, device="cuda"),
    Unit("optim", "plugins/optim/cuda", ("plugins/optim/cuda/plugin.cpp", ORDER), "plugins/optim/optim-cuda.eng.so",
         "tests/cuda/emulated/emulated-optim.eng.so", ("tests/cuda/kernels/optim_test.cpp",),
         {"muon": "*muon*,*norms over more chunks*"}, device="cuda"),
    Unit("curvature", "plugins/curvature/cuda", ("plugins/curvature/cuda/plugin.cpp", ORDER),
         "plugins/curvature/curvature-cuda.eng.so", "tests/cuda/emulated/emulated-curvature.eng.so",
         ("tests/cuda/kernels/curvature_test.cpp",), device="cuda"),
    Unit("loss", "plugins/loss/cuda", ("plugins/loss/cuda/plugin.cpp", ORDER), "plugins/loss/loss-cuda.eng.so",
         "tests/cuda/emulated/emulated-loss.eng.so", ("tests/cuda/kernels/preference_test.cpp",), device="cuda"),
    Unit("moe", "plugins/moe/cuda", ("plugins/moe/cuda/plugin.cpp", ORDER), "plugins/moe/moe-cuda.eng.so",
         "tests/cuda/emulated/emulated-moe.eng.so", ("tests/cuda/kernels/moe_test.cpp",),
         {"product": "*products*", "route": "*router*", "rows": "*gated*", "sigmoid": "*sigmoids*"}, device="cuda"),
    Unit("transform", "plugins/transform/cuda", ("plugins/transform/cuda/plugin.cpp", ORDER),
         "plugins/transform/transform-cuda.eng.so", "tests/cuda/emulated/emulated-transform.eng.so",
         ("tests/cuda/kernels/fp8_test.cpp",),
         {"product": "*fp8 products*,*products in fp8*", "state": "*histories of fp8*"}, device="cuda"),
)
EMULATOR = ("tests/cuda/emulator/fiber.cpp", "tests/cuda/emulator/machine.cpp", "tests/cuda/emulator/warp.cpp",
            "tests/cuda/emulator/warp_group.cpp")
# Plugins that the tests compare with, built by ninja.
COMPARED = ("plugins/cpu/reference.eng.so", "plugins/mamba/mamba.eng.so", "plugins/optim/muon.eng.so",
            "plugins/optim/adamw8bit.eng.so", "plugins/curvature/curvature.eng.so",
            "plugins/loss/preference.eng.so", "plugins/moe/moe.eng.so")


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns], cwd=ROOT,
                         stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    return sorted({n for n in out if n and (ROOT / n).is_file()})


def unlisted():
    listed = {str(f.relative_to(ROOT)) for u in UNITS for f in u.sources()}
    return [n for n in tracked("plugins/**.cu", "plugins/*.cu") if n not in listed]

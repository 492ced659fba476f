# SPDX-License-Identifier: Apache-2.0
"""Memory traffic that an element of each kernel needs, and the kernels that memory does not bound. See roofline.py."""
from roofline import Pass, Rule

B200 = ("sm_100",)  # whose memory is the fastest beside its instructions
REDUCE = "each sum is rounded to 16 bits; the formats that ship sum in f32"
F16 = "NaN of f16 is mended by hand, and rounding it takes twice the instructions of bf16"
TOKENS = "a thread goes along the tokens of one channel, neighbouring threads read neighbours"
LANES = "64 lanes with a sum each: the order of the CPU's bits"

RULES = (
    Rule("elementwise::AddOf<A, Y>", (Pass("A+Y", "Y"),)),
    Rule("elementwise::WideCastOf<X, Y>", (Pass("X", "Y"),), narrow="f64 occurs in no step"),
    Rule("elementwise::MapOf<cuda::elementwise::Scale, X, Y>", (Pass("X", "Y"),)),
    Rule("elementwise::MapOf<cuda::elementwise::Cast, X, Y>", (Pass("X", "Y"),)),
    Rule("elementwise::MapOf<cuda::elementwise::Activation, X, Y>", (Pass("X", "Y"),)),
    Rule("elementwise::MapOf<cuda::elementwise::ActivationGrad, X, Y>", (Pass("2*X", "Y"),)),
    Rule("elementwise::MapOf<cuda::elementwise::Gated, X, Y>", (Pass("2*X", "Y"),)),
    Rule("elementwise::MapOf<cuda::elementwise::GatedGrad, X, Y>", (Pass("3*X", "2*Y"),)),
    # x and the residual, and their sum; then y, from the row in shared memory.
    Rule("norm::forward<N, X, Y>", (Pass("2*X", "X"), Pass(stores="Y", cached="2*Y")),
         why="weights and bias of all rows"),
    # dy, s and ds; then dx, with w again; then, once for each slice, the sums of weights.
    Rule("norm::backward<N, X, Y>", (Pass("2*X+Y"), Pass(stores="X", cached="Y"), Pass(times=0)),
         why="weights of all rows"),
    Rule("column_sums::sum<N, T, S>", (Pass("T"),)),
    # The gradient needs the sum of the whole row: logits are read twice.
    Rule("cross_entropy::softmax<D>", (Pass("4"), Pass("4", "D"))),
    Rule("cross_entropy::StoreOf<S>", (Pass("4+S", "S"),)),
    Rule("optimizer::UpdateOf<W, N>", (Pass("16", "12+W"),)),  # with both states, which sgd does not have
    Rule("optimizer::RoundedUpdateOf<G, N>", (Pass("G+6", "6"),),
         slow="half a block of random numbers, two divisions and a root of each element: 126 instructions"),
    Rule("sequence::EmbeddingOf<T>", (Pass("T", "T", cached="0.5"),), why="tokens, for all vectors of a row"),
    Rule("sequence::embedding_grad<N, T, S>", (Pass("T"),)),
    Rule("sequence::PositionsOf<cuda::f16, P>", (Pass("2", "2", cached="2.5+P"),), slow=F16,
         why="the table, for all sequences; counters and positions, for all vectors of a row"),
    Rule("sequence::PositionsOf<T, P>", (Pass("T", "T", cached="T+0.25*T+0.5*P"),),
         why="the table, for all sequences; counters and positions, for all vectors of a row"),
    Rule("sequence::PositionsGradOf<T, S>", (Pass("T"),)),
    Rule("sequence::rope<N, T, P>", (Pass("T", "T", cached="4+0.25*T+0.5*P"),), straight=True,
         why="the table, for all heads; counters and positions, for all vectors of a row"),
    Rule("sequence::dropout<N, T>", (Pass("T", "T", cached="0.3125*T"),), straight=True,
         why="counters, for all elements", slow="a fourth of a block of random numbers for each element"),
    Rule("attention::row_deltas<T>", (Pass("2*T"),)),
    Rule("step::sum_squares<T>", (Pass("T"),), narrow=LANES),
    Rule("step::FoldOf<cuda::bf16, cuda::bf16, 2>", (Pass("4", "2"),), slow=REDUCE),
    Rule("step::FoldOf<cuda::bf16, cuda::bf16, 4>", (Pass("8", "2"),), slow=REDUCE),
    Rule("step::FoldOf<cuda::bf16, cuda::bf16, 8>", (Pass("16", "2"),), slow=REDUCE),
    Rule("step::FoldOf<cuda::f16, cuda::f16, 2>", (Pass("4", "2"),), slow=REDUCE),
    Rule("step::FoldOf<cuda::f16, cuda::f16, 4>", (Pass("8", "2"),), slow=REDUCE),
    Rule("step::FoldOf<cuda::f16, cuda::f16, 8>", (Pass("16", "2"),), slow=REDUCE),
    Rule("step::FoldOf<T, Y, 2>", (Pass("2*T", "Y"),)),
    Rule("step::FoldOf<T, Y, 4>", (Pass("4*T", "Y"),)),
    Rule("step::FoldOf<T, Y, 8>", (Pass("8*T", "Y"),)),
    Rule("on_cuda::conv<T>", (Pass("T", "T"),), narrow=TOKENS),
    Rule("on_cuda::conv_grad<T>", (Pass("3*T", "T"),), narrow=TOKENS),  # with dx_acc
    Rule("on_cuda::SumBlocksOf<T>", (Pass("4"),), narrow="neighbouring threads read neighbours"),
    Rule("on_cuda::clear_columns<T>", (Pass(stores="T"),), narrow="columns begin anywhere"),
    Rule("on_cuda::copy_rows", (Pass("16", "16"),)),
    # An element: one token of a channel, with 16 states. B and C of 16 tokens are loaded outside of the loop over them.
    Rule("on_cuda::scan<T, 16, 1, (mamba::on_cuda::Pass)0>", (Pass("3*T", "T"),), ps={"sm_90a": 6}),
    # The tables of codes; then p, grad, m, v and p, m, v and the weight. The lane's code has one more byte: the scales.
    Rule("adamw8bit::on_cuda::update<W>", (Pass(times=0), Pass("11", "7+W")), on=B200,
         slow="two searches for a code, two divisions and a root of each element: 154 instructions"),
    Rule("muon::on_cuda::sum_squares", (Pass("4"),), narrow=LANES),
    Rule("muon::on_cuda::ApplyOf<W>", (Pass("8", "4+W"),), slow="nvcc loads p a second time, from a cache", on=B200),
    Rule("muon::on_cuda::MomentumOf", (Pass("8", "8"),)),
    Rule("muon::on_cuda::ScaleOf", (Pass("4", "4"),)),
)

SINGLE = "single elements: rows of no whole vectors, or too long for shared memory"
# A part of a kernel's name -> why memory does not bound it, or need not.
OTHERS = {
    "layout::": "bytes are moved in units of up to 16, which are as wide as the sizes allow",
    "relu::": "behind products for which the library has no epilogue; eight elements of a thread",
    "each_row<1,": SINGLE,
    "norm::forward<1,": SINGLE,
    "norm::backward<1,": SINGLE,
    "column_sums::sum<1,": SINGLE + "; few columns and slices",
    "embedding_grad<1,": SINGLE,
    "rope<1,": SINGLE,
    "dropout<1,": SINGLE,
    "copy_rows<unsigned": SINGLE,
    "step::FoldAnyOf": "ranks that are not 2, 4 or 8",
    "attention::forward": "products",
    "attention::grad_": "products",
    "attention::find_documents": "one number for each token",
    "attention::CacheOf": "one token of a sequence at a time",
    "product::multiply": "products",
    "cross_entropy::total": "one block, one loss for each token",
    "sequence::FillOf": "once, before the first step",
    "step::begin": "one block of the step's own numbers",
    "step::finish": "one block of the step's own numbers",
    "step::loss_scale": "one block of the step's own numbers",
    "step::loss_seed": "one block of the step's own numbers",
    "step::scaler": "one block of the step's own numbers",
    "step::put_row": "one number for each token",
    "step::get_row": "one number for each token",
    "on_cuda::ALogOf": "once, before the first step",
    "on_cuda::DtBiasOf": "once, before the first step",
    "on_cuda::scan<": "the states' arithmetic",
    "on_cuda::scan_grad": "the states' arithmetic",
    "on_cuda::HandOver": "states at the borders of spans, some thousand tokens each",
    "on_cuda::SumSpansOf": "one number for each state, channel and span",
    "on_cuda::conv_sums": "five numbers for each channel and 64 tokens",
    "muon::on_cuda::factor_of": "one block, one number for 4,096 elements",
}

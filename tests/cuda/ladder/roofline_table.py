# SPDX-License-Identifier: Apache-2.0
"""What an element of each kernel needs of memory, and which kernels memory does not bound. See roofline.py."""
from roofline import Pass, Rule

RULES = (
    Rule("elementwise::AddOf<A, B, Y>", (Pass("A+B", "Y"),)),
    Rule("elementwise::ScaleOf<T>", (Pass("T", "T"),)),
    Rule("elementwise::CastOf<X, Y>", (Pass("X", "Y"),)),
    Rule("elementwise::WideCastOf<X, Y>", (Pass("X", "Y"),)),
    Rule("elementwise::ActivationOf<T>", (Pass("T", "T"),)),
    Rule("elementwise::ActivationGradOf<T>", (Pass("2*T", "T"),)),
    Rule("elementwise::GatedOf<T>", (Pass("2*T", "T"),)),
    Rule("elementwise::GatedGradOf<T>", (Pass("3*T", "2*T"),)),
    # x and the residual; y and their sum. The row should stay where it is.
    Rule("norm::forward<X, Y>", (Pass("2*X"), Pass(again="2*X"), Pass(stores="X+Y", cached="2*Y", again="2*X")),
         why="weights and bias of all rows"),
    # dy, s and w; then ds and dx.
    Rule("norm::backward<X, Y>", (Pass("X+Y", cached="Y"), Pass("X", "X", again="X+2*Y")), why="weights of all rows"),
    Rule("norm::weights<X, Y>", (Pass("X+Y", cached="8"),), why="mean and rstd of a row"),
    Rule("norm::SlicesOf<S>", (Pass("4"),)),
    # The gradient needs the sum of the whole row: logits are read twice.
    Rule("cross_entropy::softmax<D>", (Pass("4"), Pass(again="4"), Pass("4", "D"))),
    Rule("cross_entropy::StoreOf<S>", (Pass("4+S", "S"),)),
    Rule("optimizer::UpdateOf<G, S, W, N>", (Pass("G+3*S", "3*S+W"),)),  # with both states, which sgd does not have
    Rule("product::SumRowsOf<T, S>", (Pass("T"),)),
    Rule("sequence::EmbeddingOf<T>", (Pass("T", "T"),)),
    Rule("sequence::embedding_grad<T, S>", (Pass(cached="4"), Pass("T")), why="tokens, by every block"),
    Rule("sequence::PositionsOf<T, P>", (Pass("T", "T", cached="T"),), why="the table, for all sequences"),
    Rule("sequence::PositionsGradOf<T, S>", (Pass("T"),)),
    Rule("sequence::RopeOf<T, P>", (Pass("T", "T", cached="4"),), why="the table, for all heads"),
    Rule("sequence::DropoutOf<T>", (Pass("T", "T"),)),
    Rule("attention::row_deltas<T>", (Pass("2*T"),)),
    Rule("step::sum_squares<T>", (Pass("T"),)),
    Rule("step::FoldOf<T, Y>", (Pass("T"),)),
    # With packed samples (P): two segments of a token.
    Rule("on_cuda::conv<T, P>", (Pass("T", "T", cached="8*P"),), why="segments, for all channels"),
    Rule("on_cuda::conv_grad<T, P>", (Pass("3*T", "T", cached="8*P"),), why="segments, for all channels"),
    Rule("on_cuda::SumBlocksOf<T>", (Pass("4"),)),
    Rule("on_cuda::clear_columns<T>", (Pass(stores="T"),)),
    Rule("on_cuda::copy_rows<W, J>", (Pass("W", "W"),)),
    # An element: one token of a channel, with 16 states. Its part of B and C: 32 values for 128 channels of a block.
    Rule("on_cuda::scan<T, 16, false, (mamba::on_cuda::Pass)0, P>", (Pass("T", times=0.25), Pass("3*T", "T")),
         ps={"sm_90a": 6}),
    # The tables of codes; then p, grad, m, v and p, m, v and the weight. The lane's code has one more byte: the scales.
    Rule("adamw8bit::on_cuda::update<W>", (Pass(times=0), Pass("11", "7+W"))),
    Rule("muon::on_cuda::sum_squares", (Pass("4"),)),
    Rule("muon::on_cuda::ApplyOf<W>", (Pass("8", "4+W"),)),
    Rule("muon::on_cuda::MomentumOf", (Pass("8", "8"),)),
    Rule("muon::on_cuda::ScaleOf", (Pass("4", "4"),)),
)

# A part of a kernel's name -> why memory does not bound it.
OTHERS = {
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
    "on_cuda::HandOn": "states at the ends of spans, some thousand tokens each",
    "on_cuda::HandBack": "states at the ends of spans, some thousand tokens each",
    "on_cuda::sum_sequences": "one number for each state, channel and span",
    "on_cuda::conv_sums": "five numbers for each channel and 64 tokens",
    "on_cuda::keep_last": "three tokens of a sequence",
    "muon::on_cuda::factor_of": "one block, one number for 4,096 elements",
}

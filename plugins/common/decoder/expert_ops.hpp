// SPDX-License-Identifier: Apache-2.0
// The ids of the ops of a mixture of experts, for the models that emit them. Plugin `moe` provides them, through the
// interface that is open to every plugin (engine/op.h).
//
// B batch, T time, H hidden, E experts, k experts of a token, R = B * T * k rows. "f" is the type of the activations
// and of the experts' weights: f32, f64, bf16 or f16. "wide" is f32, or f64 if f is. Sums are accumulated at least in
// f32, then rounded once.
//
// Every token goes to k experts, whatever the others do: none is dropped, and there are always R pairs of a token and
// an expert. Pair p = t k + j is the choice j of token t (of all B T). The pairs are sorted by expert, those of one
// expert by their number, and that is the order of the rows of all tensors (B, T, k, ...): sizes do not depend on the
// choices, only the borders between the experts do.
#pragma once

// Chooses the k experts with the largest logits, the largest first, of equal ones the lower number.
// With p = softmax(logits) over all experts, the weight of a chosen one is its p, or with `normalise` its p divided by
// the sum of the k chosen p, which is the softmax over the logits of these k.
// in: logits (B, T, E) f; out: weights (B, T, k) wide; experts (B, T, k) i32, the chosen ones; order (B, T, k) i32: the
// pair of row r; place (B, T, k) i32: the row of pair p; offsets (E + 1) i32: expert e has rows offsets[e] ..
// offsets[e + 1] - 1; load (B, 2E + 1) wide: of each sequence, sums over its tokens: E times 1 for a token that chose
// the expert, E times p, and (log of the sum of exp(logits))^2. attrs: k i, normalise i.
#define MOE_OP_ROUTE "eng.moe.route/1"
// in: logits, experts, [dweights], [dload], of which the counts are ignored; out: dlogits, in place of logits allowed.
// attrs: as route.
#define MOE_OP_ROUTE_GRAD "eng.moe.route_grad/1"

// As route, with the scores s = sigmoid(logits) in place of the softmax. Of the experts, `groups` equal groups, only
// those of `chosen_groups` groups are eligible: those in which the two largest of s + correction have the largest sum,
// of equal ones the group with the lower number. The k eligible experts with the largest s + correction are chosen; the
// weight of one is scale * s, with `normalise` divided by the sum of the k chosen s. DeepSeek-AI 2024.
// in: logits (B, T, E) f, [correction (E) f32]; out: weights, experts, order, place, offsets as route.
// attrs: k i, normalise i, scale f, groups i, chosen_groups i; with groups > 1 each has at least two experts.
#define MOE_OP_ROUTE_SIGMOID "eng.moe.route_sigmoid/1"
// in: logits, experts, dweights; out: dlogits. attrs: as route_sigmoid.
#define MOE_OP_ROUTE_SIGMOID_GRAD "eng.moe.route_sigmoid_grad/1"

// y[r] = x[r] w[e]^T for the rows r of each expert e. With order and place, x[r] is the x of the token of pair
// order[r]. in: x (B, T, k, K), w (E, N, K), offsets; or x (B, T, K), w, offsets, order, place; out: y (B, T, k, N).
#define MOE_OP_LINEAR "eng.moe.linear/1"
// dx[r] = dy[r] w[e]. in: dy (B, T, k, N), w (E, N, K), offsets; out: dx (B, T, k, K).
#define MOE_OP_LINEAR_INPUT_GRAD "eng.moe.linear_input_grad/1"
// dw[e] = sum over the rows of e, in their order, of dy[r]^T x[r]; zeros if e has none.
// in: dy (B, T, k, N), x (B, T, k, K), offsets, [acc (E, N, K)]; out: dw (E, N, K), in place of acc if given. Where f
// has 16 bits, dw and acc may be f32 instead.
#define MOE_OP_LINEAR_WEIGHT_GRAD "eng.moe.linear_weight_grad/1"

// y[r] = act(gate[r]) * up[r] * weights[order[r]], where x[r] = [gate | up]. The map behind it is linear, so it is as
// well to weigh its input as its output, and nothing behind it need be kept for the gradient of the weights.
// in: x (B, T, k, 2I), weights (B, T, k) wide, order; out: y (B, T, k, I). attr: act i (ENG_ACT_*).
#define MOE_OP_GATED "eng.moe.gated/1"
// in: dy, x, weights, order; out: dx, in place of x allowed; dweights. attr: act.
#define MOE_OP_GATED_GRAD "eng.moe.gated_grad/1"

// y[t] = sum of x[place[t k + j]] over j upwards. in: x (B, T, k, H), place, order; out: y (B, T, H).
#define MOE_OP_COMBINE "eng.moe.combine/1"
// y[r] = x of the token of pair order[r]; the gradient of combine. Only gradient rules emit it.
// in: x (B, T, H), order; out: y (B, T, k, H).
#define MOE_OP_GATHER "eng.moe.gather/1"

// Two terms of the loss, of the sum of `load` over all layers; each is a sum over sequences. With n = rows, the number
// of tokens of a sequence times the number of layers, and for each sequence c[e] = count / n and p[e] = sum of p / n:
// balance = sum of E * sum over e of c[e] p[e] (Fedus et al. 2021); z = sum of (sum of log^2) / n (Zoph et al. 2022).
// in: load (B, 2E + 1); out: balance (1), z (1), of its type. attr: rows i.
#define MOE_OP_BALANCE "eng.moe.balance/1"
// in: load, [dbalance (1)], [dz (1)]; out: dload. attr: rows.
#define MOE_OP_BALANCE_GRAD "eng.moe.balance_grad/1"

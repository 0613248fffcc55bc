"""Answers to the exercises of chapter 05. Attentions with one wrong step: ``mutants.py``."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import encoder_lib
import mutants
from answers import right, wrong

WRONG_VALUES = {
    "5.1": {
        "per_head": 8404992, "no_bias": 1048576, "three_maps": 787968, "one_head": 131328,
        "one_map": 262656,
    }
}  # fmt: skip


# --- 5.2, head_contributions ----------------------------------------------------------------------

CHECK = "head_contributions"


@right(CHECK)
def by_einsum(heads, w_o_weight):
    cut = w_o_weight.view(-1, heads.shape[1], heads.shape[3])
    return torch.einsum("bhld,ohd->bhlo", heads, cut)


@right(CHECK)
def head_by_head(heads, w_o_weight):
    d_k, found = heads.shape[-1], []
    for h in range(heads.shape[1]):
        columns = w_o_weight[:, h * d_k : (h + 1) * d_k]
        found.append(F.linear(heads[:, h], columns))
    return torch.stack(found, 1)


@right(CHECK)
def others_set_to_zero(heads, w_o_weight):
    b, n, length, _ = heads.shape
    found = []
    for h in range(n):
        alone = heads * F.one_hot(torch.tensor(h), n)[:, None, None]
        found.append(alone.transpose(1, 2).reshape(b, length, -1) @ w_o_weight.T)
    return torch.stack(found, 1)


@wrong(CHECK, "not_transposed")
def rows_instead_of_columns(heads, w_o_weight):
    d_k, found = heads.shape[-1], []
    for h in range(heads.shape[1]):
        found.append(heads[:, h] @ w_o_weight[h * d_k : (h + 1) * d_k])
    return torch.stack(found, dim=1)


@wrong(CHECK, "interleaved")
def steps_of_h(heads, w_o_weight):
    n = heads.shape[1]
    return torch.stack([heads[:, h] @ w_o_weight[:, h::n].T for h in range(n)], dim=1)


@wrong(CHECK, "added")
def already_summed(heads, w_o_weight):
    return head_by_head(heads, w_o_weight).sum(1)


@wrong(CHECK, "averaged")
def shared_by_all(heads, w_o_weight):
    return by_einsum(heads, w_o_weight) / len(heads[0])


@wrong(CHECK, "cuts_output")
def output_in_pieces(heads, w_o_weight):
    b, n, length, d_k = heads.shape
    out = heads.permute(0, 2, 1, 3).reshape(b, length, n * d_k) @ w_o_weight.T
    return out.view(b, length, n, d_k).permute(0, 2, 1, 3)


@wrong(CHECK, "one_piece")
def always_the_first_columns(heads, w_o_weight):
    return F.linear(heads, w_o_weight[:, : heads.shape[-1]])


@wrong(CHECK, "badmerge")
def zeroed_and_reshaped(heads, w_o_weight):
    b, n, length, d_k = heads.shape
    found = []
    for h in range(n):
        only = torch.zeros_like(heads)
        only[:, h] = heads[:, h]
        found.append(only.reshape(b, length, n * d_k) @ w_o_weight.T)
    return torch.stack(found, dim=1)


@wrong(CHECK, "no_oproj")
def just_placed(heads, w_o_weight):
    b, n, length, d_k = heads.shape
    out = heads.new_zeros(b, n, length, n * d_k)
    for h in range(n):
        out[:, h, :, h * d_k : (h + 1) * d_k] = heads[:, h]
    return out


@wrong(CHECK, "heads_last")
def stacked_at_the_wrong_place(heads, w_o_weight):
    return torch.einsum("bhld,ohd->blho", heads, w_o_weight.unflatten(1, heads.shape[1::2]))


@wrong(CHECK, "heads_last")
def side_by_side(heads, w_o_weight):
    return torch.cat(head_by_head(heads, w_o_weight).unbind(1), dim=-1)


# --- 5.3, split_heads -----------------------------------------------------------------------------

CHECK = "split_heads"


@right(CHECK)
def slices_stacked(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_k : (h + 1) * d_k] for h in range(n_heads)], dim=1)


@right(CHECK)
def view_and_permute(x, n_heads):
    b, length, d = x.shape
    return x.view(b, length, n_heads, d // n_heads).permute(0, 2, 1, 3)


@right(CHECK)
def chunks(x, n_heads):
    return torch.cat([part.unsqueeze(1) for part in x.chunk(n_heads, dim=-1)], dim=1)


@wrong(CHECK, "badsplit")
def view_alone(x, n_heads):
    b, length, d = x.shape
    return x.view(b, n_heads, length, d // n_heads)


@wrong(CHECK, "interleaved")
def every_nth(x, n_heads):
    return torch.stack([x[..., h::n_heads] for h in range(n_heads)], dim=1)


@wrong(CHECK, "heads_last")
def forgot_to_move(x, n_heads):
    return x.view(x.shape[0], x.shape[1], n_heads, -1)


@wrong(CHECK, "heads_last")
def stacked_behind(x, n_heads):
    return torch.stack(x.chunk(n_heads, -1), dim=2)


@wrong(CHECK, "heads_last")
def stacked_at_the_end(x, n_heads):
    return torch.stack(x.chunk(n_heads, -1), dim=-1)


@wrong(CHECK, "heads_first")
def stacked_in_front(x, n_heads):
    return torch.stack(x.chunk(n_heads, -1))


@wrong(CHECK, "no_axis")
def one_behind_the_other(x, n_heads):
    return torch.cat(x.chunk(n_heads, -1), dim=1)


@wrong(CHECK, "too_far")
def keys_already_transposed(x, n_heads):
    return slices_stacked(x, n_heads).transpose(-1, -2)


@wrong(CHECK, "sizes_swapped")
def d_k_heads(x, n_heads):
    return x.view(x.shape[0], x.shape[1], -1, n_heads).permute(0, 2, 1, 3)


@wrong(CHECK, "cuts_tokens")
def slices_of_the_sentence(x, n_heads):
    size = x.shape[1] // n_heads
    return torch.stack([x[:, h * size : (h + 1) * size] for h in range(n_heads)], dim=1)


@wrong(CHECK, "whole_input")
def everything_for_everybody(x, n_heads):
    return torch.stack([x for _ in range(n_heads)], dim=1)


@wrong(CHECK, "list_of_heads")
def one_by_one(x, n_heads):
    return list(x.chunk(n_heads, dim=-1))


@wrong(CHECK, "no_axis")
def heads_in_the_batch(x, n_heads):
    return slices_stacked(x, n_heads).flatten(0, 1)


# --- 5.4, merge_heads -----------------------------------------------------------------------------

CHECK = "merge_heads"


@right(CHECK)
def concatenated(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


@right(CHECK)
def permuted_and_reshaped(x):
    return x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


@right(CHECK)
def written_into_place(x):
    b, n, length, d_k = x.shape
    out = torch.empty(b, length, n * d_k)
    for h in range(n):
        out[:, :, h * d_k : (h + 1) * d_k] = x[:, h]
    return out


@wrong(CHECK, "badmerge")
def reshape_alone(x):
    b, n, length, d_k = x.shape
    return x.reshape(b, length, n * d_k)


@wrong(CHECK, "interleaved")
def stacked_last(x):
    return torch.stack(list(x.unbind(1)), dim=-1).flatten(-2)


@wrong(CHECK, "not_merged")
def only_transposed(x):
    return x.permute(0, 2, 1, 3).contiguous()


@wrong(CHECK, "not_merged")
def stacked_not_flattened(x):
    return torch.stack(list(x.unbind(1)), dim=-1)


@wrong(CHECK, "added")
def summed(x):
    return sum(x[:, h] for h in range(x.shape[1]))


@wrong(CHECK, "added")
def averaged_over_heads(x):
    return x.mean(dim=1)


@wrong(CHECK, "along_length")
def one_after_the_other(x):
    return torch.cat(list(x.unbind(1)), dim=1)


@wrong(CHECK, "along_length")
def along_the_batch(x):
    return torch.cat(list(x.unbind(1)), dim=0)


@wrong(CHECK, "wrong_axes")
def last_two_transposed(x):
    b, n, length, d_k = x.shape
    return x.transpose(-1, -2).reshape(b, length, n * d_k)


@wrong(CHECK, "wrong_axes")
def batch_in_the_way(x):
    b, n, length, d_k = x.shape
    return x.permute(2, 0, 1, 3).reshape(b, length, n * d_k)


# --- 5.5, multi_head_attention --------------------------------------------------------------------

CHECK = "multi_head_attention"
right(CHECK)(encoder_lib.MultiHeadAttention)
right(CHECK, note="interleaved")(mutants.mutant("interleaved_heads"))
right(CHECK, note="swapped")(mutants.mutant("qk_swapped"))
for form in mutants.WRONG:
    wrong(CHECK, "random" if form == "dropout_always" else form)(mutants.mutant(form))


@right(CHECK)
class Fused(nn.Module):
    """One map for queries, keys and values; the wrong ones below change one method each."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def thirds(self, x):
        return self.qkv(x).view(*x.shape[:2], 3, self.h, -1).permute(2, 0, 3, 1, 4)  # 3, B, H, L, d

    def scale(self, q):
        return q.size(-1) ** -0.5

    def shares(self, scores):
        return scores.softmax(-1)

    def result(self, out, weights):
        return out, weights

    def forward(self, x, keep_mask=None):
        q, k, v = self.thirds(x)
        scores = q @ k.mT * self.scale(q)
        if keep_mask is not None:
            scores = scores.masked_fill(~keep_mask[:, None, None], -1e9)
        weights = self.shares(scores)
        return self.result(self.proj((weights @ v).transpose(1, 2).reshape(x.shape)), weights)


@right(CHECK)
class OutputAlone(Fused):
    def result(self, out, weights):
        return out


@right(CHECK, note="not all of your maps have a bias")
class WithoutBiases(Fused):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)


@right(CHECK)
class BareParameters(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in "qkvo":
            setattr(self, f"W{name}", nn.Parameter(torch.randn(d_model, d_model)))
            setattr(self, f"b{name}", nn.Parameter(torch.randn(d_model)))

    def forward(self, x, mask=None):
        b, length, d = x.shape
        q, k, v = (
            (x @ getattr(self, f"W{n}") + getattr(self, f"b{n}")).view(b, length, self.n_heads, -1)
            for n in "qkv"
        )
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(d // self.n_heads)
        if mask is not None:
            scores = scores.where(mask[:, None, None, :], torch.tensor(-torch.inf))
        out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(b, length, d)
        return out @ self.Wo + self.bo


def into_torch(module, weights):
    with torch.no_grad():
        module.inner.in_proj_weight.copy_(torch.cat([weights[f"w_{n}"] for n in "qkv"]))
        module.inner.in_proj_bias.copy_(torch.cat([weights[f"b_{n}"] for n in "qkv"]))
        module.inner.out_proj.weight.copy_(weights["w_o"])
        module.inner.out_proj.bias.copy_(weights["b_o"])


@right(CHECK, adapter=into_torch)
class AroundTorchs(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x, keep_mask=None):
        padding = None if keep_mask is None else ~keep_mask
        return self.inner(x, x, x, key_padding_mask=padding, average_attn_weights=False)


class Head(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d_model, d_k) for _ in range(3))

    def forward(self, x, keep_mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / self.key.out_features**0.5
        if keep_mask is not None:
            scores = scores.masked_fill(~keep_mask.unsqueeze(1), float("-inf"))
        return F.softmax(scores, dim=2) @ self.value(x)


def into_heads(module, weights):
    for h, head in enumerate(module.heads):
        for map_, n in ((head.query, "q"), (head.key, "k"), (head.value, "v")):
            map_.weight.data = weights[f"w_{n}"].chunk(len(module.heads))[h].clone()
            map_.bias.data = weights[f"b_{n}"].chunk(len(module.heads))[h].clone()
    module.mix.weight.data, module.mix.bias.data = weights["w_o"].clone(), weights["b_o"].clone()


@right(CHECK, adapter=into_heads)
class ListOfHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // n_heads) for _ in range(n_heads))
        self.mix = nn.Linear(d_model, d_model)

    def forward(self, x, keep_mask=None):
        return self.mix(torch.cat([head(x, keep_mask) for head in self.heads], dim=-1))


wrong(CHECK, "names")(ListOfHeads)


@wrong(CHECK, "scale_other")
class Multiplied(Fused):
    def scale(self, q):
        return q.size(-1) ** 0.5


@wrong(CHECK, "scale_other")
class ByTheLength(Fused):
    def scale(self, q):
        return 1 / math.sqrt(q.size(-2))


@wrong(CHECK, "softmax_heads")
class HeadsCompete(Fused):
    def shares(self, scores):
        return F.softmax(scores, dim=1)


@wrong(CHECK, "no_softmax")
class OnlyExponentials(Fused):
    def shares(self, scores):
        return scores.exp()


@wrong(CHECK, "averaged_weights")
class AsTorchReturnsThem(Fused):
    def result(self, out, weights):
        return out, weights.mean(1)


@wrong(CHECK, "roles_mixed")
class PackedHeadByHead(Fused):
    def thirds(self, x):
        return self.qkv(x).view(*x.shape[:2], self.h, -1).transpose(1, 2).chunk(3, dim=-1)


@wrong(CHECK, "roles_mixed")
class ValuesFirst(Fused):
    def thirds(self, x):
        v, k, q = super().thirds(x)
        return q, k, v


@wrong(CHECK, "shared_qk")
class QueriesAreKeys(Fused):
    def thirds(self, x):
        q, _, v = super().thirds(x)
        return q, q, v


@wrong(CHECK, "shared_qkv")
class OneProjection(Fused):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        del self.qkv
        self.all_three = nn.Linear(d_model, d_model)

    def thirds(self, x):
        y = self.all_three(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        return y, y, y


@wrong(CHECK, "sliced_input")
class EachItsOwnSlice(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(self.d_k, self.d_k) for _ in range(3))
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, keep_mask=None):
        x = x.unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)
        mask = None if keep_mask is None else keep_mask[:, None, None]
        out = F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), mask)
        return self.w_o(out.transpose(1, 2).flatten(2))


# --- 5.5, unusual ways to write it, and less usual mistakes ---------------------------------------


@right(CHECK)
class MaskByNameOnly(Fused):
    def forward(self, x, *, keep_mask=None):
        return super().forward(x, keep_mask)


@right(CHECK)
class OptionsUnnamed(Fused):
    def forward(self, x, **options):
        return super().forward(x, **options)


@right(CHECK)
class MapsInADict(Fused):
    def __init__(self, d_model, n_heads):
        nn.Module.__init__(self)
        self.h = n_heads
        maps = {"w_qkv": nn.Linear(d_model, 3 * d_model), "w_o": nn.Linear(d_model, d_model)}
        self.maps = nn.ModuleDict(maps)

    def qkv(self, x):
        return self.maps["w_qkv"](x)

    def proj(self, x):
        return self.maps["w_o"](x)


@right(CHECK, names={"w_qkv": "big", "w_o": "last"})
class OtherNames(Fused):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.big, self.last = self.qkv, self.proj
        del self.qkv, self.proj
        self.__dict__["qkv"], self.__dict__["proj"] = self.big, self.last


right(CHECK)(OtherNames)


@right(CHECK)
class WeightsToLookAt(Fused):
    def result(self, out, weights):
        return out, weights.detach()


class Maskless(Fused):
    """What is done with the scores and the mask is left to ``masked``."""

    def masked(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], -1e9)

    def forward(self, x, keep_mask=None):
        q, k, v = self.thirds(x)
        scores = q @ k.mT * self.scale(q)
        weights = (scores if keep_mask is None else self.masked(scores, keep_mask)).softmax(-1)
        return self.result(self.proj((weights @ v).transpose(1, 2).reshape(x.shape)), weights)


@wrong(CHECK, "gradient")
class NanInThePadding(Maskless):
    def masked(self, scores, keep):
        both = keep[:, None, None] & keep[:, None, :, None]
        return scores.masked_fill(~both, -math.inf)


@wrong(CHECK, "mask_small_neg")
class TwentyFilledIn(Maskless):
    def masked(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], -20.0)


@wrong(CHECK, "mask_small_neg")
class FiftyTakenOff(Maskless):
    def masked(self, scores, keep):
        return scores - 50.0 * (1 - keep[:, None, None].float())


@wrong(CHECK, "mask_input")
class InputSetToZero(Fused):
    def forward(self, x, keep_mask=None):
        return super().forward(x if keep_mask is None else x * keep_mask[..., None])


@wrong(CHECK, "mask_future")
class ReadsBackwardsOnly(Fused):
    def shares(self, scores):
        future = torch.ones(scores.shape[-2:]).triu(1) == 1
        return scores.masked_fill(future, -1e9).softmax(-1)


@wrong(CHECK, "mixes_positions")
class PrefersNearWords(Fused):
    def shares(self, scores):
        place = torch.arange(scores.size(-1))
        return (scores - (place[:, None] - place).abs()).softmax(-1)


@wrong(CHECK, "batch_attn")
class CenteredOverTheBatch(Fused):
    def shares(self, scores):
        return (scores - scores.mean(0) * torch.linspace(0, 1, scores.size(-1))).softmax(-1)


@wrong(CHECK, "one_head")
class NumberOfHeadsUnused(Fused):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, 1)


@wrong(CHECK, "residual_inside")
class AddsItsInput(Fused):
    def result(self, out, weights):
        return out + self.seen

    def forward(self, x, keep_mask=None):
        self.seen = x
        return super().forward(x, keep_mask)


@wrong(CHECK, "layouts_mixed")
class CutsOtherwiseThanItMerges(Fused):
    def thirds(self, x):
        return self.qkv(x).view(*x.shape[:2], 3, -1, self.h).permute(2, 0, 4, 1, 3)


@wrong(CHECK, "roles_mixed")
class ThreeInEveryHead(Fused):
    def thirds(self, x):
        return self.qkv(x).view(*x.shape[:2], self.h, -1, 3).permute(4, 0, 2, 1, 3)


@wrong(CHECK, "scale_late")
class OutputScaled(Maskless):
    def scale(self, q):
        self.late = q.size(-1) ** 0.5
        return 1.0

    def proj(self, x):
        return self.out(x / self.late)

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        del self.proj
        self.out = nn.Linear(d_model, d_model)


@wrong(CHECK, "softmax_twice")
class OnceMore(Fused):
    def shares(self, scores):
        return scores.softmax(-1).softmax(-1)


@wrong(CHECK, "wrong_weights")
class ScoresReturned(Fused):
    def shares(self, scores):
        self.seen = scores
        return scores.softmax(-1)

    def result(self, out, weights):
        return out, self.seen


@wrong(CHECK, "badsplit+no_scale")
class CutInMemoryAndUnscaled(Fused):
    def thirds(self, x):
        return [y.reshape(len(x), self.h, x.size(1), -1) for y in self.qkv(x).chunk(3, -1)]

    def scale(self, q):
        return 1.0

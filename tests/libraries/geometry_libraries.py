"""Cases of libraries of equivariant networks, memory in transformers, and Bayesian layers."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded, of_shape, tokens


@case("recurrent_memory_transformer.RecurrentMemoryTransformer")
def _():
    from recurrent_memory_transformer_pytorch import RecurrentMemoryTransformer

    m = RecurrentMemoryTransformer(
        num_tokens=32, num_memory_tokens=4, dim=16, depth=2, causal=True, dim_head=8, heads=2, seq_len=8
    )
    return m, tokens(32, (2, 8))


@case("block_recurrent_transformer.BlockRecurrentTransformer")
def _():
    from block_recurrent_transformer_pytorch import BlockRecurrentTransformer

    m = BlockRecurrentTransformer(
        num_tokens=32,
        dim=16,
        depth=2,
        dim_head=8,
        heads=2,
        max_seq_len=16,
        block_width=8,
        num_state_vectors=8,
        recurrent_layers=(1,),
    )
    return m, tokens(32, (2, 16))


@case("equiformer_pytorch.Equiformer")
def _():
    from equiformer_pytorch import Equiformer

    m = Equiformer(
        num_tokens=8,
        dim=(4, 2),
        dim_head=(4, 2),
        heads=(2, 1),
        num_degrees=2,
        depth=1,
        attend_self=True,
        reduce_dim_out=True,
        num_neighbors=3,
    )
    return Wrapped(lambda m, t, c, k: m(t, c, k).type0, m), [
        (torch.randint(0, 8, (1, 6)), torch.randn(1, 6, 3), torch.ones(1, 6).bool()) for _ in range(2)
    ]


@case("se3_transformer_pytorch.SE3Transformer")
def _():
    from se3_transformer_pytorch import SE3Transformer

    m = SE3Transformer(dim=8, heads=2, depth=1, dim_head=4, num_degrees=2, valid_radius=10)
    return m, [(torch.randn(1, 6, 8), torch.randn(1, 6, 3), torch.ones(1, 6).bool()) for _ in range(2)]


@case("invariant_point_attention.IPABlock")
def _():
    from invariant_point_attention import IPABlock

    m = IPABlock(
        dim=16,
        heads=2,
        scalar_key_dim=4,
        scalar_value_dim=4,
        point_key_dim=2,
        point_value_dim=2,
        pairwise_repr_dim=8,
    )
    calls = []
    for _ in range(2):
        calls.append((graded(1, 6, 16),))
    kw = dict(
        pairwise_repr=torch.randn(1, 6, 6, 8),
        rotations=torch.eye(3).expand(1, 6, 3, 3),
        translations=torch.randn(1, 6, 3),
        mask=torch.ones(1, 6).bool(),
    )
    return m, calls, kw


@case("memory_efficient_attention.Attention")
def _():
    from memory_efficient_attention_pytorch import Attention

    return Attention(
        dim=16, dim_head=8, heads=2, causal=True, memory_efficient=True, q_bucket_size=4, k_bucket_size=8
    ), of_shape((1, 16, 16))


@case("memory_efficient_attention.FlashAttention")
def _():
    from memory_efficient_attention_pytorch import FlashAttention

    return FlashAttention(
        dim=16, dim_head=8, heads=2, causal=True, q_bucket_size=4, k_bucket_size=8
    ), of_shape((1, 16, 16))


@case("bayesian_torch.LinearReparameterization")
def _():
    from bayesian_torch.layers import LinearReparameterization

    return LinearReparameterization(6, 3), of_shape((2, 6))


@case("bayesian_torch.Conv2dFlipout")
def _():
    from bayesian_torch.layers import Conv2dFlipout

    return Conv2dFlipout(2, 3, 3), of_shape((2, 2, 6, 6))


@case("blitz.BayesianLinear")
def _():
    from blitz.modules import BayesianLinear

    return BayesianLinear(6, 3), of_shape((2, 6))


@case("blitz.BayesianLSTM")
def _():
    from blitz.modules import BayesianLSTM

    return BayesianLSTM(4, 5), of_shape((2, 3, 4))


@case("torchdyn.NeuralODE")
def _():
    from torchdyn.core import NeuralODE

    f = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    m = NeuralODE(f, sensitivity="autograd", solver="rk4")
    return Wrapped(lambda m, x: m(x, torch.linspace(0, 1, 4))[1], m), of_shape((3, 2))


@case("mega_pytorch.Mega")
def _():
    from mega_pytorch import Mega

    return Mega(
        num_tokens=32, dim=16, depth=1, ema_heads=4, attn_dim_qk=8, attn_dim_value=16, laplacian_attn_fn=True
    ), tokens(32, (2, 8))


@case("colt5_attention.ConditionalRoutedFeedForward")
def _():
    from colt5_attention import ConditionalRoutedFeedForward

    return ConditionalRoutedFeedForward(16, light_ff_mult=0.5, heavy_ff_mult=2, num_heavy_tokens=4), of_shape(
        (1, 12, 16)
    )


@case("colt5_attention.ConditionalRoutedAttention")
def _():
    from colt5_attention import ConditionalRoutedAttention

    m = ConditionalRoutedAttention(
        dim=16,
        light_dim_head=8,
        light_heads=2,
        light_window_size=4,
        heavy_dim_head=8,
        heavy_heads=2,
        num_heavy_tokens_q=4,
        num_heavy_tokens_kv=4,
    )
    return m, of_shape((1, 12, 16))


@case("torchbnn.BayesLinear")
def _():
    import torchbnn

    return torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=4, out_features=3), of_shape((2, 4))

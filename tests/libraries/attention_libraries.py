"""Cases of einops, opt_einsum, x-transformers and vit-pytorch."""

import torch
from torch import nn

from libraries.library_cases import case, graded


# -- einops
@case("einops.rearrange")
def _():
    from einops import rearrange

    return (lambda x: rearrange(x, "b (h w) c -> b c h w", h=2)), [
        (graded(2, 8, 3),),
        (graded(2, 8, 3),),
        (graded(3, 6, 2),),
    ]


@case("einops.reduce_repeat")
def _():
    from einops import reduce, repeat

    return (lambda x: repeat(reduce(x, "b h w -> b w", "mean"), "b w -> b k w", k=3)), [
        (graded(2, 4, 3),),
        (graded(1, 2, 3),),
    ]


@case("einops.layers")
def _():
    from einops.layers.torch import Rearrange, Reduce

    return nn.Sequential(
        Rearrange("b c (h k) -> b h (c k)", k=2), nn.Linear(6, 4), Reduce("b h c -> b c", "max")
    ), [(graded(2, 3, 8),), (graded(2, 3, 8),)]


@case("einops.einsum_pack")
def _():
    from einops import einsum, pack, unpack

    def f(x, y):
        z = einsum(x, y, "b i j, b j k -> b i k")
        p, ps = pack([x, z], "b * k")
        a, b = unpack(p, ps, "b * k")
        return a * 2, b

    return f, [(graded(2, 3, 4), graded(2, 4, 4)), (graded(2, 3, 4), graded(2, 4, 4))]


@case("einops.EinMix")
def _():
    from einops.layers.torch import EinMix

    return EinMix("b t (g c) -> b t (g d)", weight_shape="g c d", bias_shape="g d", g=2, c=3, d=4), [
        (graded(2, 5, 6),),
        (graded(2, 5, 6),),
    ]


@case("einx.rearrange")
def _():
    import einx

    return (lambda x: einx.id("a (b c) -> a c b", x, b=2)), [(graded(2, 8),), (graded(2, 8),)]


# -- opt_einsum
@case("opt_einsum.contract")
def _():
    import opt_einsum

    return (lambda a, b, c: opt_einsum.contract("ij,jk,kl->il", a, b, c)), [
        (graded(2, 3), graded(3, 4), graded(4, 5)),
        (graded(2, 3), graded(3, 4), graded(4, 5)),
    ]


@case("opt_einsum.expression")
def _():
    import opt_einsum

    e = opt_einsum.contract_expression("ij,jk->ik", (2, 3), (3, 4))
    return (lambda a, b: e(a, b)), [(graded(2, 3), graded(3, 4)), (graded(2, 3), graded(3, 4))]


# -- x-transformers
@case("x_transformers.decoder")
def _():
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=32, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, attn_dim_head=8)
    ).eval(), [(torch.randint(0, 32, (2, 8)),), (torch.randint(0, 32, (2, 8)),)]


@case("x_transformers.rotary_flash")
def _():
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=32,
        max_seq_len=16,
        attn_layers=Decoder(
            dim=16,
            depth=1,
            heads=2,
            attn_dim_head=8,
            rotary_pos_emb=True,
            attn_flash=True,
            ff_glu=True,
            use_rmsnorm=True,
        ),
    ).eval(), [(torch.randint(0, 32, (2, 8)),), (torch.randint(0, 32, (2, 8)),)]


@case("x_transformers.encoder")
def _():
    from x_transformers import ContinuousTransformerWrapper, Encoder

    return ContinuousTransformerWrapper(
        dim_in=4, dim_out=5, max_seq_len=16, attn_layers=Encoder(dim=16, depth=1, heads=2, attn_dim_head=8)
    ).eval(), [(graded(2, 8, 4),), (graded(2, 8, 4),)]


@case("x_transformers.encdec")
def _():
    from x_transformers import XTransformer

    return XTransformer(
        dim=16,
        enc_num_tokens=32,
        enc_depth=1,
        enc_heads=2,
        enc_max_seq_len=16,
        dec_num_tokens=32,
        dec_depth=1,
        dec_heads=2,
        dec_max_seq_len=16,
    ).eval(), [(torch.randint(0, 32, (2, 8)), torch.randint(0, 32, (2, 8)))]


@case("x_transformers.vit")
def _():
    from x_transformers import Encoder, ViTransformerWrapper

    return ViTransformerWrapper(
        image_size=16,
        patch_size=4,
        num_classes=5,
        attn_layers=Encoder(dim=16, depth=1, heads=2, attn_dim_head=8),
    ).eval(), [(graded(2, 3, 16, 16),), (graded(2, 3, 16, 16),)]


# -- vit-pytorch
def vision_transformer(name, cls, mod=None, **kw):
    @case(f"vit_pytorch.{name}")
    def _():
        import importlib

        m = importlib.import_module("vit_pytorch" + (f".{mod}" if mod else ""))
        return getattr(m, cls)(**kw).eval(), [(graded(1, 3, 32, 32),), (graded(1, 3, 32, 32),)]


vision_transformer(
    "ViT", "ViT", image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=16
)
vision_transformer(
    "SimpleViT", "SimpleViT", image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=16
)
vision_transformer(
    "DeepViT",
    "DeepViT",
    "deepvit",
    image_size=32,
    patch_size=8,
    num_classes=5,
    dim=16,
    depth=1,
    heads=2,
    mlp_dim=16,
)
vision_transformer(
    "CaiT",
    "CaiT",
    "cait",
    image_size=32,
    patch_size=8,
    num_classes=5,
    dim=16,
    depth=1,
    cls_depth=1,
    heads=2,
    mlp_dim=16,
)
vision_transformer(
    "T2TViT",
    "T2TViT",
    "t2t",
    dim=16,
    image_size=32,
    depth=1,
    heads=2,
    mlp_dim=16,
    num_classes=5,
    t2t_layers=((7, 4), (3, 2)),
)
vision_transformer(
    "CCT",
    "CCT",
    "cct",
    img_size=32,
    embedding_dim=16,
    n_conv_layers=1,
    num_layers=1,
    num_heads=2,
    mlp_ratio=2,
    num_classes=5,
)
vision_transformer(
    "CrossViT",
    "CrossViT",
    "cross_vit",
    image_size=32,
    num_classes=5,
    depth=1,
    sm_dim=16,
    sm_patch_size=8,
    sm_enc_depth=1,
    sm_enc_heads=2,
    sm_enc_mlp_dim=16,
    lg_dim=16,
    lg_patch_size=16,
    lg_enc_depth=1,
    lg_enc_heads=2,
    lg_enc_mlp_dim=16,
    cross_attn_depth=1,
    cross_attn_heads=2,
)
vision_transformer(
    "LeViT", "LeViT", "levit", image_size=32, num_classes=5, stages=1, dim=16, depth=1, heads=2, mlp_mult=2
)
vision_transformer(
    "CvT",
    "CvT",
    "cvt",
    num_classes=5,
    s1_emb_dim=8,
    s1_heads=1,
    s1_depth=1,
    s2_emb_dim=8,
    s2_heads=1,
    s2_depth=1,
    s3_emb_dim=8,
    s3_heads=1,
    s3_depth=1,
)
vision_transformer(
    "NesT",
    "NesT",
    "nest",
    image_size=32,
    patch_size=4,
    dim=8,
    heads=1,
    num_hierarchies=2,
    block_repeats=(1, 1),
    num_classes=5,
)
vision_transformer(
    "simple_vit_fft",
    "SimpleViT",
    "simple_vit_with_fft",
    image_size=32,
    patch_size=8,
    freq_patch_size=8,
    num_classes=5,
    dim=16,
    depth=1,
    heads=2,
    mlp_dim=16,
)
vision_transformer(
    "RegisterViT",
    "SimpleViT",
    "simple_vit_with_register_tokens",
    image_size=32,
    patch_size=8,
    num_classes=5,
    dim=16,
    depth=1,
    heads=2,
    mlp_dim=16,
)

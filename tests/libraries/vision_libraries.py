"""Cases of piq, pytorch-msssim, lightly, torchvision, open_clip, segment-anything and the like."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded, of_shape


def images(channels: int, size: int, of: int = 2):
    """Return two calls, each with two batches of images, of which the first requires grad."""
    shape = (of, channels, size, size)
    return [(torch.rand(shape, requires_grad=True), torch.rand(shape)) for _ in range(2)]


# -- measures of images
for _name in ("ssim", "gmsd", "vif_p", "haarpsi", "mdsi", "fsim"):

    @case(f"piq.{_name}")
    def _(name=_name):
        import piq

        return getattr(piq, name), images(3, 48)


@case("pytorch_msssim.ssim")
def _():
    from pytorch_msssim import ssim

    return (lambda x, y: ssim(x, y, data_range=1.0, win_size=7)), images(3, 32)


@case("pytorch_msssim.MS_SSIM")
def _():
    from pytorch_msssim import MS_SSIM

    return MS_SSIM(data_range=1.0, win_size=3, channel=3), images(3, 40)


# -- losses of representations
for _name in ("BarlowTwinsLoss", "VICRegLoss", "DCLLoss", "TiCoLoss"):

    @case(f"lightly.{_name}")
    def _(name=_name):
        import lightly.loss

        return Wrapped(lambda loss, x, y: loss(x, y), getattr(lightly.loss, name)()), of_shape((4, 8), (4, 8))


@case("lightly.DINOLoss")
def _():
    import lightly.loss

    views = [([graded(4, 8) for _ in range(2)], [graded(4, 8) for _ in range(3)]) for _ in range(2)]
    return lightly.loss.DINOLoss(output_dim=8), views


# -- models
@case("torchvision.resnet18")
def _():
    from torchvision.models import resnet18

    return resnet18(num_classes=4).eval(), [(torch.randn(1, 3, 64, 64),) for _ in range(2)]


@case("torchvision.MaxVit")
def _():
    from torchvision.models import MaxVit

    model = MaxVit((32, 32), 8, 2, [8, 16], [1, 1], 4, 0.0, num_classes=4)
    return model.eval(), [(torch.randn(1, 3, 32, 32),) for _ in range(2)]


@case("torchvision.box_losses")
def _():
    from torchvision import ops

    corners = torch.tensor([0, 0, 1.0, 1.0])
    boxes = [((torch.rand(3, 4) + corners).requires_grad_(), torch.rand(3, 4) + corners) for _ in range(2)]
    return (lambda a, b: (ops.box_iou(a, b), ops.complete_box_iou_loss(a, b))), boxes


@case("torchvision.transforms", grads=False)
def _():
    from torchvision.transforms import v2

    changes = [v2.Resize((8, 8)), v2.RandomHorizontalFlip(0.5), v2.Normalize([0.5] * 3, [0.5] * 3)]
    return v2.Compose(changes), [(torch.rand(3, 12, 12),) for _ in range(2)]


@case("lambda_networks.LambdaLayer")
def _():
    from lambda_networks import LambdaLayer

    return LambdaLayer(dim=8, dim_out=8, n=6, dim_k=4, heads=2, dim_u=1), of_shape((2, 8, 6, 6))


@case("timesformer_pytorch.TimeSformer")
def _():
    from timesformer_pytorch import TimeSformer

    model = TimeSformer(
        dim=8, image_size=16, patch_size=8, num_frames=2, num_classes=3, depth=1, heads=2, dim_head=4
    )
    return model, [(torch.randn(1, 2, 3, 16, 16),) for _ in range(2)]


@case("slot_attention.MultiHead")
def _():
    from slot_attention import MultiHeadSlotAttention

    return MultiHeadSlotAttention(num_slots=3, dim=8, heads=2, dim_head=4, iters=2), of_shape((1, 6, 8))


@case("open_clip.CLIP")
def _():
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP

    vision = {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8, "image_size": 16}
    text = {"context_length": 6, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}
    model, loss = CLIP(embed_dim=8, vision_cfg=vision, text_cfg=text), ClipLoss()
    calls = [(torch.randn(2, 3, 16, 16), torch.randint(0, 20, (2, 6))) for _ in range(2)]
    return Wrapped(lambda m, x, y: loss(*m(x, y)), model), calls


@case("segment_anything.ImageEncoder")
def _():
    from segment_anything.modeling import ImageEncoderViT

    model = ImageEncoderViT(
        img_size=32,
        patch_size=8,
        embed_dim=8,
        depth=2,
        num_heads=2,
        out_chans=4,
        use_rel_pos=True,
        window_size=2,
        global_attn_indexes=(1,),
    )
    return model, [(torch.randn(1, 3, 32, 32),) for _ in range(2)]


@case("efficientnet_pytorch.features")
def _():
    from efficientnet_pytorch import EfficientNet

    model = EfficientNet.from_name(
        "efficientnet-b0", num_classes=4, image_size=32, width_coefficient=0.3, depth_coefficient=0.3
    )
    calls = [(torch.randn(2, 3, 32, 32),) for _ in range(2)]
    return Wrapped(lambda m, x: m.extract_features(x), model), calls


@case("fvcore.losses")
def _():
    from fvcore.nn import sigmoid_focal_loss, smooth_l1_loss

    def program(a, b):
        return sigmoid_focal_loss(a, b, reduction="mean"), smooth_l1_loss(a, b, 0.5, "sum")

    return program, [(graded(3, 4), torch.rand(3, 4)) for _ in range(2)]


@case("pretrainedmodels.SENet")
def _():
    from pretrainedmodels.models.senet import SENet, SEResNetBottleneck

    settings = {"inplanes": 64, "input_3x3": False, "downsample_kernel_size": 1, "downsample_padding": 0}
    model = SENet(
        SEResNetBottleneck, [1, 1, 1, 1], groups=1, reduction=16, dropout_p=None, num_classes=3, **settings
    )
    return nn.Sequential(model.layer0, model.layer1).eval(), [(torch.randn(1, 3, 32, 32),) for _ in range(2)]

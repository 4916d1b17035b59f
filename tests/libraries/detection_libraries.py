"""Cases of libraries of detection, segmentation, generation of images, and spiking neurons."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded, of_shape, plain


@case("snntorch.Leaky")
def _():
    import snntorch as snn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.lif1 = nn.Linear(6, 8), snn.Leaky(beta=0.9)
            self.fc2, self.lif2 = nn.Linear(8, 3), snn.Leaky(beta=0.8, learn_beta=True)

        def forward(self, x):
            mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
            out = []
            for _step in range(4):
                spk, mem1 = self.lif1(self.fc1(x), mem1)
                spk, mem2 = self.lif2(self.fc2(spk), mem2)
                out.append(mem2)
            return torch.stack(out)

    return Net(), of_shape((2, 6))


@case("snntorch.Synaptic_hidden")
def _():
    import snntorch as snn

    net = nn.Sequential(nn.Linear(4, 6), snn.Synaptic(alpha=0.9, beta=0.8, init_hidden=True, output=True))

    def f(net, x):
        net[1].reset_mem()
        return net(x)

    return Wrapped(f, net), of_shape((2, 4))


@case("snntorch.RLeaky")
def _():
    import snntorch as snn

    m = snn.RLeaky(beta=0.5, linear_features=4)
    return Wrapped(lambda m, x: m(x, *m.init_rleaky()), m), of_shape((2, 4))


@case("snntorch.ce_rate_loss")
def _():
    import snntorch.functional as SF

    return SF.ce_rate_loss(), [(graded(5, 2, 4), torch.randint(0, 4, (2,))) for _ in range(2)]


@case("norse.LIFFeedForwardCell")
def _():
    from norse.torch.module.lif import LIFFeedForwardCell

    return LIFFeedForwardCell(), of_shape((2, 4))


@case("norse.LIFCell")
def _():
    from norse.torch.module.lif import LIFCell

    return Wrapped(lambda c, x: c(x)[0], LIFCell(4, 5)), of_shape((2, 4))


@case("norse.LIFLayer")
def _():
    from norse.torch.module.lif import LIFLayer

    return Wrapped(lambda c, x: c(x)[0], LIFLayer(4, 5)), of_shape((3, 2, 4))


@case("lpips.LPIPS")
def _():
    import lpips

    return lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False), of_shape(
        (1, 3, 48, 48), (1, 3, 48, 48)
    )


@case("rectified_flow_pytorch.RectifiedFlow")
def _():
    from rectified_flow_pytorch import RectifiedFlow, Unet

    return RectifiedFlow(Unet(dim=8, dim_mults=(1, 2), flash_attn=False)), [
        (torch.rand(2, 3, 16, 16),) for _ in range(2)
    ]


@case("bottleneck_transformer.BottleStack")
def _():
    from bottleneck_transformer_pytorch import BottleStack

    return BottleStack(
        dim=16,
        fmap_size=8,
        dim_out=32,
        proj_factor=4,
        downsample=True,
        heads=2,
        dim_head=8,
        rel_pos_emb=True,
        num_layers=1,
    ), of_shape((2, 16, 8, 8))


@case("halonet.HaloAttention")
def _():
    from halonet_pytorch import HaloAttention

    return HaloAttention(dim=16, block_size=4, halo_size=2, dim_head=8, heads=2), of_shape((2, 16, 8, 8))


@case("x_clip.CLIP")
def _():
    from x_clip import CLIP

    m = CLIP(
        dim_text=16,
        dim_image=16,
        dim_latent=16,
        num_text_tokens=64,
        text_enc_depth=1,
        text_seq_len=8,
        text_heads=2,
        text_dim_head=8,
        visual_enc_depth=1,
        visual_image_size=32,
        visual_patch_size=16,
        visual_heads=2,
        visual_dim_head=8,
        visual_patch_dropout=0.0,
        use_all_token_embeds=True,
    )
    return (
        m,
        [(torch.randint(1, 64, (2, 8)), torch.randn(2, 3, 32, 32)) for _ in range(2)],
        dict(return_loss=True),
    )


for _name in ("yolov8n", "yolo11n", "yolov8n-seg", "yolov8n-pose"):

    @case(f"ultralytics.{_name}")
    def _(name=_name):
        from ultralytics.nn.tasks import DetectionModel, PoseModel, SegmentationModel

        cls = SegmentationModel if "seg" in name else PoseModel if "pose" in name else DetectionModel
        # Batches of eight numbers are normalised: in float32 gradients are rounding as much as numbers.
        m = cls(f"{name}.yaml", verbose=False).double()
        return m.train(), [(x.double(),) for (x,) in plain((2, 3, 64, 64))]


@case("ultralytics.yolov8n_eval")
def _():
    from ultralytics.nn.tasks import DetectionModel

    return DetectionModel("yolov8n.yaml", verbose=False).eval(), plain((1, 3, 64, 64))


@case("ultralytics.nms")
def _():
    from ultralytics.utils.metrics import bbox_iou

    return (lambda a, b: bbox_iou(a, b, CIoU=True)), [
        (torch.rand(4, 4) + 0.1, torch.rand(4, 4) + 0.1) for _ in range(2)
    ]


@case("magvit2_pytorch.VideoTokenizer")
def _():
    from magvit2_pytorch import VideoTokenizer

    m = VideoTokenizer(
        image_size=16,
        init_dim=8,
        max_dim=16,
        codebook_size=64,
        layers=("residual", ("compress_space", 16), "attend_space"),
        flash_attn=False,
        use_gan=False,
        perceptual_loss_weight=0.0,
    )
    return Wrapped(lambda m, x: m(x, return_recon=True), m.eval()), [
        (torch.rand(1, 3, 1, 16, 16),) for _ in range(2)
    ]

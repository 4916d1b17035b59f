"""Where the programs of the published documents are, by lines, and what of them does not run as printed."""

from __future__ import annotations

from typing import Final

from documents.published.reader import Cell, Document

__all__ = ["DOCUMENTS"]

#: the sizes of the models, on the CPU
SMALL: Final = (
    ("4096", "64"),
    ("11008", "176"),
    ("12288", "192"),
    ("32000", "320"),
    ("2048", "32"),
    (
        "'Llama-2-7b-hf')",
        "'Llama-2-7b-hf', n_embd=64, n_head=4, intermediate_size=176, vocab_size=320, padded_vocab_size=320)",
    ),
)

INTRODUCTION: Final = Document(
    "000",
    "d85807ff863f5911",
    (
        Cell("1", (8, 13)),
        Cell("2", (21, 40), (42, 46)),
        Cell("3", (52, 52)),
        Cell("4", (55, 55), (57, 63)),
        Cell("5", (68, 72), (74, 74)),
        Cell("6", (85, 85), (87, 105)),
        Cell("7", (122, 128), (131, 152)),
        Cell("8", (157, 164), (167, 167)),
        Cell("9", (173, 173), (175, 224)),
        Cell("10", (232, 232), (234, 241)),
        Cell("11", (246, 248), (250, 250)),
        Cell("12", (256, 259)),
        Cell("13", (266, 269)),
        Cell("14", (290, 322), (325, 325)),
        Cell("15", (329, 329), slow=True, gpus=2),
        Cell("16", (348, 349), (351, 351)),
        Cell("17", (359, 382)),
        Cell("18", (387, 399)),
        Cell("19", (404, 419), (421, 435)),
        Cell("20", (441, 600)),
        Cell("21", (605, 606)),
        Cell("28", (611, 624)),
        Cell("23", (629, 644), (646, 660)),
        Cell("24", (665, 678), (680, 680)),
        Cell("25", (686, 686), (688, 692)),
        Cell("26", (699, 712)),
        Cell("27", (716, 728), (732, 732)),
        Cell("29", (738, 738), (740, 770)),
    ),
    on_cpu=(
        *SMALL,
        ('f"cuda:{rank}"', '"cpu"'),
        ("'nccl'", "'gloo'"),
        ('"cuda"', '"cpu"'),
        ("'cuda'", "'cpu'"),
        ("cuda:0", "cpu"),
        (" device='cpu',", ""),
        ("DeviceType.CUDA", "DeviceType.CPU"),
    ),
)

QUANTISATION: Final = Document(
    "001",
    "b4d666dbfd78cad1",
    (
        Cell("plain", (39, 50), (52, 86)),
        Cell("quantised", (92, 109)),
        Cell("the quantised trace", (112, 112), (114, 152)),
        Cell("quantised and sharded", (164, 168)),
    ),
    corrected=(
        # a name is spelt in two ways, and another is never defined
        ("get_bitsandbytes_exeucutor", "get_bitsandbytes_executor"),
        ("bnb_executors", "bnb_executor"),
        # the trace of a module that was not called
        ("jm = thunder.jit(mlp)\n", "jm = thunder.jit(mlp)\njm(inp)\n"),
    ),
    on_cpu=(('"cuda"', '"cpu"'), ("cuda:0", "cpu")),
)

META_DEVICE: Final = Document(
    "002",
    "bafe65c5dd089c84",
    (Cell("materialisation", (15, 34)),),
    levels={20: 1, 22: 1, 24: 1, 26: 1},
    on_cpu=(('"cuda"', '"cpu"'),),
)

OFFLOADING: Final = Document(
    "003",
    "c82867e9279bee1b",
    (
        Cell("1", (5, 20)),
        Cell("8", (42, 73)),
        Cell("9", (76, 134)),
        Cell("10", (159, 335)),
        Cell("11", (337, 342)),
        Cell("12", (344, 356)),
        Cell("13", (359, 402), (403, 405)),
        Cell("the forward", (408, 408), (410, 427)),
        Cell("the backward", (430, 430), (432, 451)),
        Cell("14", (456, 460), (461, 461)),
        Cell("15", (463, 463), (465, 473)),
        Cell("16", (475, 475), (477, 485)),
        Cell("22", (493, 534)),
        Cell("23", (536, 537)),
        Cell("24", (545, 546)),
    ),
    levels={
        **{53: 1, 61: 0, 69: 0, 92: 1, 98: 2, 100: 2, 101: 1, 102: 0, 107: 0, 121: 2, 122: 1, 131: 1},
        **{176: 1, 187: 2, 189: 2, 195: 2, 197: 1, 203: 1, 236: 3, 246: 2, 253: 1, 277: 3, 279: 2},
        **{298: 3, 299: 2, 300: 1, 303: 2, 310: 2, 314: 3, 332: 3, 335: 2, 339: 1, 351: 1},
        **{363: 1, 366: 2, 367: 0, 373: 0, 383: 0, 389: 0, 390: 0, 396: 0},
        **{501: 2, 505: 1, 510: 0, 515: 1, 517: 1, 519: 1},
    },
    on_cpu=(('"cuda"', '"cpu"'), ("'cuda'", "'cpu'"), ("cuda:0", "cpu"), ("n_layers=100", "n_layers=20")),
)

GRADIENTS_TWICE: Final = Document(
    "004",
    "f6d2268767504da1",
    (
        Cell("twice", (12, 43)),
        Cell("twice by the library", (62, 75), device="cuda", module="transformer_engine"),
    ),
    on_cpu=(("'cuda'", "'cpu'"),),
)

DOCUMENTS: Final = {
    document.name: document
    for document in (INTRODUCTION, QUANTISATION, META_DEVICE, OFFLOADING, GRADIENTS_TWICE)
}

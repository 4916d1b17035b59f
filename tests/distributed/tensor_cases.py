"""Training with parameters in parts, compared with one process."""

from __future__ import annotations

import copy
import traceback
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import thunder
from distributed.attention_models import COLUMNS, ROWS, pages, reader
from distributed.divided_programs import Random
from distributed.launching import case, message, shared_folder, sliced
from distributed.small_models import Words, batches, words
from distributed.trainings import STEPS, compared, distance, gradients_of, shapes_in_use
from thunder.distributed import column_parallel, communication, row_parallel
from thunder.distributed.checkpoint import get_model_state_dict, load, save
from thunder_bnb.four_bit import BitsAndBytesLinearQuant4bit
from thunder_transforms.lora import LORATransform
from thunder_transforms.materialization import MaterializationTransform

WORDS_COLUMNS, WORDS_ROWS = ["blocks.*.up", "head"], ["blocks.*.down", "embedding"]


def in_parts(columns=COLUMNS, rows=ROWS, group=None, sequence_dim=None) -> list[Any]:
    """Return the transforms that divide the layers of a model."""
    return [
        column_parallel(target_modules=columns, process_group=group),
        row_parallel(target_modules=rows, process_group=group, sequence_dim=sequence_dim),
    ]


def trained(transforms: list[Any], make: Any = reader, data: Any = None, **options: Any) -> dict[str, Any]:
    """Return the differences of training by transforms from training in one process."""
    return compared(make(), make(), transforms, pages(STEPS, 4) if data is None else data, **options)


TRAINED = sliced(
    4,
    {
        "sequence parallel": lambda: trained(in_parts(sequence_dim=-2), lambda: reader(dropout=0.2)),
        "tensor parallel": lambda: trained(in_parts()),
        # widths of 11, a table of 7 words, a tied and a frozen parameter
        "uneven tensor parallel": lambda: trained(
            in_parts(WORDS_COLUMNS, WORDS_ROWS), words, batches(STEPS, 3)
        ),
        "dropped tensor parallel": lambda: trained(in_parts(), lambda: reader(dropout=0.2), accumulated=2),
    },
)


@case
def draws_that_differ():
    """Dropout is drawn by processes with other seeds, and then with the same one."""
    compiled = thunder.jit(reader(dropout=0.2), transforms=in_parts())
    (batch,) = pages(1, 2)
    torch.manual_seed(dist.get_rank())
    error = message(compiled, *batch)
    torch.manual_seed(3)
    return error, compiled(*batch).item(), communication(compiled)[0].signature


def random_programs(seeds: range) -> tuple[list[str], set[str]]:
    """Return the programs whose results or gradients differ from eager's, and the collectives of all."""
    wrong, used = [], set[str]()
    for seed in seeds:
        plain, model = Random(seed), Random(seed)
        torch.manual_seed(seed)
        x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
        compiled = thunder.jit(model, transforms=in_parts(["columns"], ["rows"], sequence_dim=1))
        try:
            results = []
            for module in (plain, compiled):
                loss = module(x)
                loss.backward()
                results.append({**gradients_of(module), "loss": loss.detach(), "input": x.grad})
                x.grad = None
            if distance(*reversed(results)) > 1e-10 * max(1.0, results[0]["loss"].abs().item()):
                wrong.append(f"{seed}: {distance(*results)}")
        except Exception:
            wrong.append(f"{seed}: {traceback.format_exc()}")
        used |= {c.name for c in communication(compiled)}
    return wrong, used


def _compared_programs(seeds: range) -> tuple[str, list[str]]:
    wrong, used = random_programs(seeds)
    return "\n".join(wrong), sorted(used)


RANDOM_PROGRAMS = sliced(
    4, {f"random programs {i}": partial(_compared_programs, range(i, i + 2)) for i in range(0, 8, 2)}
)


@case
def states_of_parts():
    """State dicts of both forms, also of a model that begins without memory."""
    compiled = thunder.jit(words(), transforms=in_parts(WORDS_COLUMNS, WORDS_ROWS))
    other = words(seed=3).state_dict()
    loaded = compiled.load_original_state_dict(other)
    shapes = shapes_in_use(compiled)
    again = thunder.jit(words(), transforms=in_parts(WORDS_COLUMNS, WORDS_ROWS))
    again.load_state_dict(compiled.state_dict())
    with torch.device("meta"):
        model = Words().double()
    init = MaterializationTransform.init_from_original_state_dict(other)
    transforms = [*in_parts(WORDS_COLUMNS, WORDS_ROWS), MaterializationTransform("cpu", init=init)]
    allocated = thunder.jit(model, transforms=transforms)
    batch = batches(1, 2)[0]
    return (
        str(loaded),
        shapes,
        max(distance(m.original_state_dict(), other) for m in (compiled, again, allocated)),
        abs(allocated(*batch).item() - words(seed=3)(*batch).item()),
    )


@case
def processes_begin_equally():
    """Models that begin with other values in each process."""
    compiled = thunder.jit(words(seed=dist.get_rank()), transforms=in_parts(WORDS_COLUMNS, WORDS_ROWS))
    return distance(compiled.original_state_dict(), words(seed=0).state_dict())


@case
def adapters_beside_parts():
    """Adapters of all linear layers, whose weights are in parts."""
    torch.manual_seed(5)
    lora = [LORATransform(r=2, weights=["*.query", "*.up", "*.down", "*.out"]) for _ in range(2)]
    plain = thunder.jit(reader(), transforms=lora[:1])
    compiled = thunder.jit(reader(), transforms=[lora[1], *in_parts()])
    compiled.load_original_state_dict(plain.original_state_dict())
    with torch.no_grad():
        for name, parameter in compiled.named_parameters():
            if "lora" in name:
                parameter.copy_(plain.get_parameter(name).normal_(generator=torch.Generator().manual_seed(1)))
    differences = []
    optimizers = [
        torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1) for m in (plain, compiled)
    ]
    for batch in pages(3, 2):
        losses = [module(*batch) for module in (plain, compiled)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        differences.append(abs(losses[0].item() - losses[1].item()))
    adapters = [name for name, p in compiled.named_parameters() if p.grad is not None]
    return max(differences), distance(compiled.original_state_dict(), plain.original_state_dict()), adapters


@case
def lowered_precision():
    """A step under autocast, beside that of one process, and the dtypes of the linear layers."""
    plain, (batch,) = reader().float(), pages(1, 4)
    compiled = thunder.jit(reader().float(), transforms=in_parts(sequence_dim=1))
    losses = []
    for module in (plain, compiled):
        with torch.autocast("cpu", torch.bfloat16):
            losses.append(module(*batch))
        losses[-1].backward()
    dtypes = {
        b.output.dtype.shortname()
        for b in thunder.last_traces(compiled)[-1].bound_symbols
        if b.sym.name == "linear"
    }
    difference = distance(gradients_of(compiled), gradients_of(plain))
    return abs(losses[0].item() - losses[1].item()), difference, sorted(dtypes)


@case
def files_of_divided_parameters():
    folder = shared_folder()
    make = partial(in_parts, WORDS_COLUMNS, WORDS_ROWS)
    save(get_model_state_dict(thunder.jit(words(seed=5), transforms=make())), folder / "parts")
    other = thunder.jit(words(), transforms=make())
    state = get_model_state_dict(other)
    load(state, folder / "parts")
    return str(folder / "parts"), distance(other.original_state_dict(), words(seed=5).state_dict())


@case
def quantised_parts():
    """Parts in 4 bits, of blocks that are blocks of the whole weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).requires_grad_(False)
    x = torch.randn(3, 64)
    expected = thunder.jit(copy.deepcopy(model), transforms=[BitsAndBytesLinearQuant4bit()])(x)
    transforms = [column_parallel(target_modules=["0", "2"]), BitsAndBytesLinearQuant4bit()]
    compiled = thunder.jit(model, transforms=transforms)
    shape = shapes_in_use(compiled)["0.weight"]
    return (compiled(x) - expected).abs().max().item(), shape


class Shared(nn.Module):
    """Four heads of queries and two of keys and values, with a mask."""

    def __init__(self):
        super().__init__()
        self.query, self.pair = nn.Linear(8, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.out = nn.Linear(16, 8)
        self.double()

    def forward(self, x, mask):
        q = self.query(x).view(2, 6, 4, 4).transpose(1, 2)
        k, v = (layer(x).view(2, 6, 2, 4).transpose(1, 2) for layer in self.pair)
        mixed = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


@case
def shared_heads():
    """Masks that are whole, for each batch, and for each head."""
    torch.manual_seed(2)
    model, x = Shared(), torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    compiled = thunder.jit(model, transforms=in_parts(["query", "pair.*"], ["out"]))
    differences, used = [], []
    for shape in ((6, 6), (2, 1, 6, 6), (1, 4, 6, 6), (2, 4, 6, 6)):
        mask = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        gradients = []
        for module in (model, compiled):
            y = module(x, mask)
            gradients.append([y, *torch.autograd.grad(y.sin().sum(), (x, mask))])
        pairs = zip(*gradients, strict=True)
        differences.append(max((a - b).abs().max().item() for a, b in pairs))
        used.append([c.name for c in communication(compiled)].count("all_gather"))
    return max(differences), used


@case
def sizes_that_vary():
    """Sizes of batches and sequences that are inputs of the program."""
    model = reader()
    compiled = thunder.jit(reader(), transforms=in_parts(sequence_dim=1), cache="symbolic values")
    differences = []
    for batch, length in ((2, 8), (3, 8), (3, 5)):
        tokens = torch.arange(batch * length).view(batch, length) % 12
        differences.append(abs(compiled(tokens, tokens).item() - model(tokens, tokens).item()))
    return max(differences), thunder.cache_misses(compiled)


class Scaled(torch.autograd.Function):
    """A gradient that depends on the whole of it."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g / g.norm()


class WithOwnGradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.double()

    def forward(self, x):
        h = Scaled.apply(self.up(x))
        h.register_hook(lambda g: g * g.sum())
        return self.down(h.sin()).square().sum()


@case
def gradients_of_the_program():
    """A function of torch.autograd and a hook get the gradients of whole values."""
    torch.manual_seed(4)
    model, x = WithOwnGradients(), torch.randn(3, 4, dtype=torch.float64)
    compiled = thunder.jit(copy.deepcopy(model), transforms=in_parts(["up"], ["down"]))
    for module in (model, compiled):
        module(x).backward()
    return distance(gradients_of(compiled), gradients_of(model))

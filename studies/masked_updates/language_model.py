"""A small decoder-only transformer on bytes, and the loop that trains it with masked updates: one gradient per step."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer, RMSprop

import bcsc
from bcsc.seeding import stream, stream_key
from studies.masked_updates.arms import LanguageRun
from studies.masked_updates.text import part_of_text

NUM_BYTES = 256


class Layer(nn.Module):
    """Attention to what came before, then two linear maps, each added to what it was given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.merge = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, length, width) to the same."""
        batch, length, width = x.shape
        split = self.attend(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        narrowed: Tensor = self.narrow(F.gelu(self.widen(self.norms[1](x))))
        return x + narrowed


class ByteTransformer(nn.Module):
    """From bytes to the logits of the byte after each: 468,224 parameters by default."""

    def __init__(self, context: int = 64, width: int = 128, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(NUM_BYTES, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, NUM_BYTES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, length) to (batch, length, 256)."""
        places = self.places(torch.arange(x.shape[1], device=x.device))
        logits: Tensor = self.logits(self.norm(self.layers(self.bytes(x) + places)))
        return logits


def build_base(run: LanguageRun, model: nn.Module) -> Optimizer:
    """The optimizer inside, with the defaults of torch."""
    if run.base == "sgd":
        return SGD(model.parameters(), lr=run.lr, momentum=0.9)
    return AdamW(model.parameters(), lr=run.lr) if run.base == "adamw" else RMSprop(model.parameters(), lr=run.lr)


def rate_at(run: LanguageRun, step: int) -> float:
    """A linear warm-up, and then as it is or along a cosine to a tenth."""
    if step < run.warm_up:
        return run.lr * (step + 1) / run.warm_up
    done = (step - run.warm_up) / max(1, run.steps - run.warm_up)
    return run.lr if run.schedule == "constant" else run.lr * (0.55 + 0.45 * math.cos(math.pi * done))


def windows(text: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Pieces of a text that begin at the starts, and the byte after each of their bytes."""
    pieces = text[starts[:, None] + torch.arange(context + 1)].long()
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean cross-entropy of the next byte."""
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@torch.no_grad()
def held_out_loss(model: nn.Module, text: Tensor, run: LanguageRun) -> float:
    """The mean loss over windows that are spread evenly over a text."""
    starts = torch.linspace(0, len(text) - run.context - 1, 2048).long()
    losses = [loss_of(model, windows(text, some, run.context)) for some in torch.split(starts, 128)]
    return float(torch.stack(losses).mean())


def train_language_model(run: LanguageRun, text: Tensor) -> Iterator[Mapping[str, Any]]:
    """Train; gives what each evaluation measures, and stops where the loss is no longer finite."""
    torch.manual_seed(stream_key(run.seed, "weights"))
    model = ByteTransformer(run.context, run.width, run.depth)
    kept = [p for name, p in model.named_parameters() if name.startswith(("bytes", "places")) or p.dim() == 1]
    optimizer = bcsc.BlockCyclic(
        build_base(run, model),
        run.blocks,
        seed=run.seed,
        granularity=run.granularity,
        order=run.order,
        redraw=run.redraw or None,
        rescale=run.rescale,
        align=run.align,
        exclude=kept if run.exclude else (),
    )
    training, held_out, losses = part_of_text(text, "training"), part_of_text(text, run.measured_on), []
    for step in range(run.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(run, step)
        starts = stream(run.seed, "windows", step)
        drawn = torch.randint(len(training) - run.context, (run.batch_size,), generator=starts)
        optimizer.zero_grad()
        loss = loss_of(model, windows(training, drawn, run.context))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % run.evaluate_every == 0 or step + 1 == run.steps or not math.isfinite(losses[-1]):
            mean = sum(losses) / len(losses)
            yield {"step": step + 1, "training_loss": mean, "held_out_loss": held_out_loss(model, held_out, run)}
            if not math.isfinite(losses.pop()):
                return
            losses.clear()

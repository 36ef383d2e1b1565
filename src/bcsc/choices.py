"""The settings that are one word of a few. Each list stands here and nowhere else, and without torch."""

from typing import Literal, get_args

Mask = Literal["update", "gradient", "all"]
Granularity = Literal["element", "row", "tensor"]
Order = Literal["cyclic", "random", "bernoulli"]
Samples = Literal["shuffle-per-block", "one-shuffle", "random", "everything"]
Schedule = Literal["staircase", "constant", "cosine"]
Precision = Literal["fp32", "bf16"]
Parallel = Literal["exact", "blocks"]
Period = Literal["first_half", "last_half", "all", "final"]
Measure = Literal["test_accuracy", "test_loss", "train_loss", "train_loss_std"]

MASKS: tuple[Mask, ...] = get_args(Mask)
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
ORDERS: tuple[Order, ...] = get_args(Order)
SAMPLES: tuple[Samples, ...] = get_args(Samples)
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
PARALLELS: tuple[Parallel, ...] = get_args(Parallel)

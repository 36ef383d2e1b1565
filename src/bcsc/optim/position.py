"""Where a run stands: the epoch and the inner step inside it."""

from bcsc.errors import check_at_least


class Position:
    """The epoch and the next inner step in it; the optimizer and the sampler each keep one.

    A restored position survives ``set_epoch`` of its own epoch until it is left, so that the usual
    ``for epoch in range(optimizer.epoch, ...): optimizer.set_epoch(epoch)`` goes on where the state was saved, also
    where a trainer says the epoch more than once.

    Attributes:
        epoch, step: where it is.
        is_told: whether ``set_epoch`` was called since a step was last made from here.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.step = 0
        self.is_told = False
        self._restored = False

    def set_epoch(self, epoch: int) -> None:
        """Go to the first inner step of ``epoch``, unless a position inside it was just restored."""
        epoch = check_at_least("epoch", epoch, 0)
        if not (self._restored and epoch == self.epoch):
            self.epoch, self.step = epoch, 0
        self.is_told = True

    @property
    def is_begun_here(self) -> bool:
        """Whether no step was made in this epoch yet, or since it was restored."""
        return self.step == 0 or self._restored

    def leave(self) -> None:
        """Take note that a step was made from here: ``set_epoch`` begins its epoch anew from now on."""
        self._restored = self.is_told = False

    def begin_again(self) -> None:
        """Go back to the first inner step of the epoch."""
        self.step = 0
        self.leave()

    def restore(self, epoch: int, step: int) -> None:
        """Go to inner step ``step`` of ``epoch``."""
        self.epoch, self.step = check_at_least("epoch", epoch, 0), check_at_least("step", step, 0)
        self._restored, self.is_told = True, False

    def advance(self, steps_per_epoch: int | None = None) -> None:
        """One inner step further; after ``steps_per_epoch`` of them the next epoch begins."""
        self.step += 1
        self.leave()
        if self.step == steps_per_epoch:
            self.epoch, self.step = self.epoch + 1, 0

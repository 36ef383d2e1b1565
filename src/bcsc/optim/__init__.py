"""Block-coordinate optimization around any ``torch.optim`` optimizer."""

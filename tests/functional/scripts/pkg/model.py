"""What the training imports."""

SIZE = 4

"""What a script holds: host meshes, proc meshes, actor meshes, value meshes and futures; and the root behind them."""

__all__: list[str] = []

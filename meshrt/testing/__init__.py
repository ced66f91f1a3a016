"""For tests of programs that use meshrt: actors without processes, and classes in place of others."""

from meshrt.testing.actors import local, local_mesh, patch_actor

__all__ = ["local", "local_mesh", "patch_actor"]

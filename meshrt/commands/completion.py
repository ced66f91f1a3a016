"""``completion``: what the Tab key of a shell completes."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Command, Kind, Offer

__all__ = ["COMMAND"]

COMMAND: AnyCommand = Command(
    "completion",
    "print the shell script that completes commands, options, actors and programs",
    arguments=(
        Argument("shell", required=True, choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish"),
        Argument("words", Kind.WORDS, "the words after `meshrt`: print the completions of the last one"),
    ),
    details=(
        "In ~/.bashrc or ~/.zshrc:        source <(meshrt completion bash)      (or zsh)\n"
        "In ~/.config/fish/config.fish:   meshrt completion fish | source"
    ),
    main="meshrt.cli.completion:show",
    offer=Offer.SHELL,
)

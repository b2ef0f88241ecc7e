"""`gpu-responder completion`: what a shell evaluates to complete this command."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_GPU_RESPONDER_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete commands, options and targets.

    \b
    bash  add to ~/.bashrc:  eval "$(gpu-responder completion bash)"
    zsh   add to ~/.zshrc:   eval "$(gpu-responder completion zsh)"
    fish  add to ~/.config/fish/config.fish:
          gpu-responder completion fish | source
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "gpu-responder", _VARIABLE).source())

"""`gpu-responder token`: bearer tokens for the service."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import click
import yaml

from responder.client.tables import output_option, print_json
from responder.errors import ConfigError
from responder.web.auth import Role, generate_token, read_token_hashes, token_entry


@click.group("token")
def token() -> None:
    """Make tokens for people, Alertmanager and programs."""


@token.command("create")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do."
)
@click.option("--name", metavar="NAME", help="Whose it is; the audit has it.  [default: the role]")
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="GLOB", help="Reaches only these. Repeatable."
)
@click.option(
    "--write-token",
    type=click.Path(path_type=Path),
    help="Write the token to this new file, mode 600, not to the screen.",
)
@click.option(
    "--add-to",
    type=click.Path(path_type=Path),
    help="Add the hash to this file, the service's --token-hashes-file.",
)
@output_option
def create(
    role: str,
    name: str | None,
    namespaces: tuple[str, ...],
    write_token: Path | None,
    add_to: Path | None,
    output: str,
) -> None:
    """Make a token and the lines that let it in.

    The token is shown once and kept nowhere; the service knows its SHA-256 only, from the file that
    --token-hashes-file names, and takes up a change of it within seconds. Nothing is asked of the service.

    \b
    operator      may do everything
    viewer        may read
    alertmanager  may deliver alerts
    """
    made = generate_token()
    entry = token_entry(name or role, Role(role), made, namespaces or None)
    if write_token:
        _write_new(write_token, made)
    if add_to:
        try:
            _add(add_to, entry)
        except BaseException:
            if write_token:
                write_token.unlink(missing_ok=True)
            raise
    if output == "json":
        shown = {} if write_token else {"token": made}
        print_json({**shown, "entry": yaml.safe_load(entry)[0]})
        return
    if write_token:
        click.echo(f"The token is in {write_token}, which only you can read.")
    else:
        click.echo("The token, which is shown only this once:\n")
        click.echo(f"  {made}\n")
    if add_to:
        click.echo(f"Its hash is in {add_to}; the service takes it up within seconds.")
        return
    click.echo("Add this under `tokens:` in the file of the service's --token-hashes-file:\n")
    click.echo(entry, nl=False)


def _write_new(path: Path, made: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"--write-token: {path} exists: name a new file") from None
    except OSError as error:
        raise ConfigError(f"--write-token: {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(made + "\n")


def _add(path: Path, entry: str) -> None:
    """Put the entry at the end of the file, in one step, and only if the file is right with it."""
    try:
        before = path.read_text("utf-8")
    except FileNotFoundError:
        before = "tokens:\n"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--add-to: {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from None
    known = set(read_token_hashes(str(path))) if path.exists() else set()
    if before and not before.endswith("\n"):
        before += "\n"
    folder = path.absolute().parent
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigError(f"--add-to: {folder}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(before + _indented(entry, before))
            if path.exists():
                os.fchmod(descriptor, path.stat().st_mode & 0o777)
        after = _readable(name)
        if not known < after:
            raise ConfigError(
                f"--add-to: {path}: `tokens:` is not the end of it: add the lines by hand:\n{entry}"
            )
        Path(name).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _indented(entry: str, before: str) -> str:
    """The entry as deep as those before it."""
    dashes = [line for line in before.splitlines() if line.lstrip().startswith("- ")]
    depth = len(dashes[0]) - len(dashes[0].lstrip()) if dashes else 0
    return "".join(" " * depth + line + "\n" for line in entry.splitlines())


def _readable(path: str) -> set[bytes]:
    try:
        return set(read_token_hashes(path))
    except ConfigError:
        return set()

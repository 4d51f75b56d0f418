"""What clusters of experiments keep of what they acknowledge, as one word: `none`, `lazy`, `sync+forced`.

Before the `+` stands `storage.log.durability` of a deployment file, after it `storage.log.votes` if that is `forced`.
Every cluster here has both in its file, so that no measurement depends on what deployments do that name none.
"""

from collections.abc import Sequence
from typing import Any

from islands_command import Document, Failed, run_program

NONE = "none"
DURABILITIES = (NONE, "lazy", "sync", "command", "lazy+forced", "sync+forced")  # without a log no vote waits for one
EXPECTED = f"{', '.join(DURABILITIES[:-1])} or {DURABILITIES[-1]}"
LOG = ("storage", "log")


def word_of(durability: str, votes: str) -> str:
    return f"{durability}+forced" if votes == "forced" and durability != NONE else durability


def settings_of(word: str) -> dict[str, str]:
    """Keys of `storage.log`."""
    durability, _, votes = word.partition("+")
    return {"durability": durability, "votes": votes or "epoch"}


def given(deployment: Any, path: Sequence[str]) -> Any:
    """What a deployment says at a path of keys; None if nothing."""
    for key in path:
        deployment = deployment.get(key) if isinstance(deployment, dict) else None
    return deployment


def named_in(deployment: Document) -> str:
    """By a deployment file, `none` if by none."""
    return word_of(str(given(deployment, (*LOG, "durability")) or NONE), str(given(deployment, (*LOG, "votes"))))


def name_in(deployment: Document, word: str | None) -> None:
    """None: as it says itself, else `none`. Where a section is no mapping, `islands check` complains of it."""
    section: Any = deployment
    for folder in LOG:
        section = section.setdefault(folder, {})
        if not isinstance(section, dict):
            return
    section.update(settings_of(word) if word else settings_of(NONE) | section)


def file_system(path: str) -> str:
    """What kind holds a file: "tmpfs", "ext4"."""
    try:
        return run_program(["df", "--output=fstype", path])[0].split()[-1]
    except (Failed, OSError, IndexError):
        return "unknown"

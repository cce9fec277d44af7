"""The files of a token and of a client, as they may be found on a disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.core.errors import Corrupt, Denied, Invalid
from postroom.mail.gmail.oauth import read_client, read_token


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"web": {"client_id": "a", "client_secret": "b"}}, "web application"),
        ({"type": "service_account", "private_key": "k"}, "service account"),
        ({"token": "a", "refresh_token": "b"}, "a token and not a client"),
        ({"access_token": "a"}, "a token and not a client"),
        ({"installed": {"client_id": "a"}}, "no OAuth client"),
        ({"installed": {"client_id": "a", "client_secret": 3}}, "no OAuth client"),
        ({"installed": []}, "no OAuth client"),
        ({}, "no OAuth client"),
    ],
)
def test_a_client_of_the_wrong_kind_is_refused_by_its_name(
    tmp_path: Path, content: dict[str, Any], says: str
) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(content))
    with pytest.raises(Invalid, match=says) as refused:
        read_client(file)
    assert "Desktop app" in refused.value.remedy


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"token": 3}', "\0" * 9, "[" * 99_999]
)
def test_a_token_file_that_holds_none_is_said_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token.json"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(Corrupt):
        read_token(file)
    assert file.read_text() == text


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602, 0o601])
def test_a_token_that_others_have_any_right_to_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token.json"
    file.write_text('{"token": "a"}')
    file.chmod(mode)
    with pytest.raises(Denied) as refused:
        read_token(file)
    assert f"chmod 600 {file}" in refused.value.remedy


def test_a_folder_or_a_pipe_is_no_token(tmp_path: Path) -> None:
    import os

    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(Denied, match="not a plain file"):
            read_token(tmp_path / name)

"""Mail that arrives for a person in tests, and what became of their letters."""

from typing import Any

from tests.conftest import Person

MAIL = """From: {sender}
To: {to}
Subject: {subject}
Message-ID: <{id}@example.com>
Date: Sat, 14 Nov 2026 10:00:00 +0000
{headers}
{body}
"""


def arrive(person: Person, id: str="one", *, sender: str="Ann <ann@example.com>", to: str="you@example.org", subject: str="Tea", body: str="Come at four.", headers: str="") -> str:  # fmt: skip
    """Bring one mail in and return its id."""
    file = person.folder / f"{id}.eml"
    text = MAIL.format(id=id, sender=sender, to=to, subject=subject, body=body, headers=headers)
    file.write_text(text)
    assert person.run("import", str(file)).code == 0
    found = person.run("search", f"rfc822msgid:{id}@example.com", "--json").json["messages"]
    arrived: str = found[0]["id"]
    return arrived


def letter(person: Person, id: str) -> dict[str, Any]:
    """Return a letter as the person sees it."""
    return person.show(id)


def sent(person: Person) -> list[dict[str, Any]]:
    """Return the mails that were sent of late."""
    found = person.run("search", "in:sent newer_than:1d", "--json").json
    messages: list[dict[str, Any]] = found["messages"]
    return messages


def attached(person: Person, name: str, content: str = "<b>hi</b>", id: str = "file") -> str:
    """Bring one mail with a file in, and return its id."""
    part = (
        f'--b\nContent-Type: text/plain\n\nSee file.\n--b\nContent-Type: text/html; name="{name}"\n'
        f'Content-Disposition: attachment; filename="{name}"\n\n{content}\n--b--'
    )
    headers = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n'
    return arrive(person, id, headers=headers, body=part)

"""What tools may do where in the vault, and what a refusal tells them."""

import pytest

from postroom.core.errors import Denied
from postroom.vault.folders import Access
from tests.cases import for_each


@for_each(
    ("access", "path", "allowed"),
    [
        (
            Access(),
            "Approved/x.md",
            "Plans/, Outgoing/, folders that are not Postroom's; new notes in Needs_Action/ and Drafts/",
        ),
        (
            Access("Post", ["Work", "Home"]),
            "Post/Approved/x.md",
            "Post/Plans/, Post/Outgoing/, Work/, Home/; new notes in Post/Needs_Action/ and Post/Drafts/",
        ),
    ],
)
def test_a_tool_that_may_not_write_somewhere_is_told_where_it_may(
    access: Access, path: str, allowed: str
) -> None:
    with pytest.raises(Denied) as refused:
        access.refuse_writing(path, new=True)
    assert refused.value.remedy == f"Allowed: {allowed}."

"""Every kind of error is told apart by every surface."""

from postroom.cli.main import BROKEN_PIPE, EXITS, INTERRUPTED, OK, UNEXPECTED, exit_code
from postroom.core import errors
from postroom.core.errors import Denied, Limited, PostroomError
from postroom.core.policy import Full


def kinds() -> list[type[PostroomError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PostroomError) and kind is not PostroomError
    ]


def made(kind: type[PostroomError]) -> PostroomError:
    return kind("what", seconds=3, remedy="do") if kind is Limited else kind("what", remedy="do")


def test_every_kind_of_error_has_an_exit_code_of_its_own() -> None:
    codes = [exit_code(made(kind)) for kind in kinds()]
    assert len(codes) == 9
    assert len({*codes, OK, UNEXPECTED, INTERRUPTED, BROKEN_PIPE}) == len(codes) + 4
    assert set(EXITS) == set(kinds())


def test_every_kind_of_error_has_a_code_of_its_own_and_keeps_its_remedy() -> None:
    assert len({kind.code for kind in kinds()}) == 9
    for kind in kinds():
        error = made(kind)
        assert (str(error), error.message, error.remedy) == ("what", "what", "do")


def test_a_narrower_error_exits_like_its_class() -> None:
    assert exit_code(Full("x")) == exit_code(Denied("x"))


def test_the_tree_in_the_text_is_the_tree_in_the_code() -> None:
    drawn = {line.split()[1] for line in (errors.__doc__ or "").splitlines() if "──" in line}
    assert drawn == {kind.__name__ for kind in kinds()}

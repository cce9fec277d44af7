"""Of ordinary letters few are red and most are quiet, else nobody reads the card."""

from importlib.resources import as_file, files
from pathlib import Path

from tests.desks import Office
from tests.ordinary import SAMPLE, cards, keep, levels, read_all


def test_few_ordinary_letters_over_the_sample_mailbox_are_red(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with as_file(files("postroom.sample") / "mail.mbox") as sample:
        keep(office, sample)
    count, red, amber = levels(cards(office, SAMPLE, read_all(office)))
    office.close()
    assert count >= 60
    assert red <= 0.05 * count
    assert amber <= 0.33 * count

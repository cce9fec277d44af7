"""Names that a reader could confuse."""

from postroom.core.text import OURS, reads_as, skeleton

PERSON = [
    "person", "Person", "PERSON", "ᴘᴇʀꜱᴏɴ", "pers0n", "p3r50n", "ｐｅｒｓｏｎ", "реrsоn", "ρerson", "pérson",
    "per\u200bson", "per-son", "p.e.r.s.o.n", "_person_", "perѕon", "ⲣerson", "реrѕoռ", "𝓹𝓮𝓻𝓼𝓸𝓷", "pеrsоп",
    "pеrѕon\u3164", "person\u00ad", "P E R S O N", "per$on", "p€rson", "✓ pers○n", "perso∩", "🄿erson",
]  # fmt: skip
OTHERS = {"vau1t": "vault", "ⅴault": "vault", "Dеsk": "desk", "0rchestrator": "orchestrator",
          "n0b0dy": "nobody", "d1spatcher": "dispatcher", "dιspatcher": "dispatcher"}  # fmt: skip
ORDINARY = [
    "claude", "claude-code", "codex", "personal-assistant", "persona", "per", "Perſeus", "assistant", "desktop",
    "vaults", "agent-0", "помощник", "秘書", "助手", "Дора", "Ζήνων", "ada", "prison", "parson", "nobody-else", "",
]  # fmt: skip


def test_a_name_that_reads_as_a_reserved_one_is_recognised() -> None:
    for name in PERSON:
        assert reads_as(name, OURS) == "person", name
    for name, meant in OTHERS.items():
        assert reads_as(name, OURS) == meant, name


def test_a_letter_with_several_readings_is_taken_for_each_of_them() -> None:
    folders = ("Approved", "Needs_Action")
    for name in (
        "Approʋed",
        "Approᶌed",
        "APPꝚOVED",
        "Аррrоʋеd",
        "APPROƲED",
        "Approυed",
        "APPROԱED",
    ):
        assert reads_as(name, folders) == "Approved", name
    for name in ("NeedƧ_Action", "Needs_Actioи", "Needs_ActioИ"):
        assert reads_as(name, folders) == "Needs_Action", name
    for name in ("perƧon", "persoи", "persoн", "PERSOН"):
        assert reads_as(name, OURS) == "person", name
    for name, meant in {"ʋault": "vault", "noбody": "nobody", "NOБODY": "nobody", "dæsk": "desk"}.items():  # fmt: skip
        assert reads_as(name, OURS) == meant, name
    assert reads_as("Drafʦ", ("Drafts",)) == "Drafts"


def test_ordinary_names_of_any_script_are_nobody_elses() -> None:
    for name in ORDINARY:
        assert reads_as(name, OURS) == "", name


def test_letters_of_unicodes_table_look_like_ascii_in_either_case() -> None:
    for written in ("pаypal", "ρaypal", "PAYPAL", "ꓑꓮꓬꓑꓮꓡ", "ᏢᎪYᏢᎪᏞ", "раураl"):
        assert skeleton(written) == skeleton("paypal"), written
    assert skeleton("ΗΝΜ") == skeleton("hnm")

"""The settings: postroom.toml and the environment, parsed once into frozen values.

`settings` has the rows, `kinds` the values that are allowed, `loading` finds and reads the files.
"""

from postroom.config.kinds import ORIGIN_PATTERN, PATH, ProjectOverride
from postroom.config.loading import load, user_file
from postroom.config.settings import SETTINGS, Account, Config, Mode, Setting

__all__ = [
    "ORIGIN_PATTERN",
    "PATH",
    "SETTINGS",
    "Account",
    "Config",
    "Mode",
    "ProjectOverride",
    "Setting",
    "load",
    "user_file",
]

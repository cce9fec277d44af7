"""The settings: postroom.toml and the environment, parsed once into frozen values."""

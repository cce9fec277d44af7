"""`python -m postroom`."""

from postroom.cli.main import main

main()

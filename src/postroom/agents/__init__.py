"""Letters between agents: the files of AgentMail, shared with the original program.

What stands in `.agentmail/` is the original's: its records, byte for byte, its locks, and its way of
never replacing a file. What goes beyond it lies in `.agentmail/postroom/`, and can be lost without
losing mail. Hooks start this at every step of an agent, so nothing here imports what it does not use;
`pathlib`, `dataclasses` and `subprocess` alone would double the start.
"""

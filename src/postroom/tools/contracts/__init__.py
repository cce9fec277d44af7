"""Contracts: the tools that one server shows, by names, arguments and texts; one table a file."""

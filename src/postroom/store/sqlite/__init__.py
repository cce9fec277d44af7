"""The ledger in one SQLite file: a module for each group of nouns of `store.protocol`, which documents the methods."""

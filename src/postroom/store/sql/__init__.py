"""The nouns of the ledger, in the SQL that SQLite and PostgreSQL have in common."""

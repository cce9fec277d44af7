"""What is kept on disk: SQLite files that survive crashes, several processes and newer versions."""

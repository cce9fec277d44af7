"""What agents see: tables of tools, and the servers that show them over MCP."""

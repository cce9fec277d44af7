"""What agents see: tables of tools, and the server that shows them over MCP."""

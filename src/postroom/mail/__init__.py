"""Where mail lives: the protocols that every provider keeps, MIME, and the providers."""

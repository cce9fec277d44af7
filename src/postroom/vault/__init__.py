"""The vault: notes whose every byte stays as it was written, and the folder that holds them."""

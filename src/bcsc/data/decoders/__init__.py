"""From the bytes of a file to arrays, each checked before it is used."""

"""Bytes in and out: sources, formats, compression, the cache, and files written whole or not at all."""

"""Download, verification and caching of published files."""

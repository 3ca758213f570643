"""What is the report about? Everything is gathered here once, before a word is written."""

"""Each parser of outside data, given bytes that nobody would write; docs/testing.md says how to run this."""

"""What is submitted: each job parses its arguments, loads the configuration, calls one pipeline, prints the result."""

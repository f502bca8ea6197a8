"""Benchmarks: one file each, giving questions and judgements. Labels live here and reach no memory and no query."""

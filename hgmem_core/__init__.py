"""hgmem's pure library: Arrow tables and arrays in, Arrow tables and arrays out.

Nothing here knows Ray, a model server, the network or the clock, and nothing is read from the environment.
"""

__version__ = "0.1.0"

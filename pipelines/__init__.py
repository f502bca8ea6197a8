"""The dataflow: storage, the stage runner, model clients, versions and the retriever. Imports `hgmem_core` only."""

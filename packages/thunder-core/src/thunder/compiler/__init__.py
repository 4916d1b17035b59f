"""From an acquired program to one that runs: stages, dispatch, ledger."""

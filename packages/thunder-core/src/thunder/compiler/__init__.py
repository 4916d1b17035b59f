"""From an acquired program to one that runs: the stages, and the records that they keep."""

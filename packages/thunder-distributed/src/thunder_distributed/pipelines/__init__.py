"""Pipeline parallelism: a program that is cut into stages, which processes run by a schedule."""

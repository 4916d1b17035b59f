"""Checks of a release: what is built, what it says of itself, and whether it runs where it is installed.

    hatch run release:check                  everything, a table, exit status 1 for a failure
    hatch run release:check --only thunder-core --keep work
    hatch run release:build                  the files alone, in dist/

| module | checks |
|---|---|
| `builds` | wheels and source distributions have the same bytes when they are built elsewhere and later |
| `contents` | metadata, README, licence, requirements between packages, files |
| `local_index` | a package index of the built files; other names are those of the usual index |
| `installations` | each package alone and all together, in environments of their own: a program, `doctor` |
"""

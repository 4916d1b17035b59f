"""Programs that a user has edited by hand, and what two programs differ in."""

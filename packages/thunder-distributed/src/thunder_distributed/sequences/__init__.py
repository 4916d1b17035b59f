"""The division of the sequences of a program between the processes of a group, and attention over them."""

"""What attributes, class, identity and truth of the objects of a type are to the program."""

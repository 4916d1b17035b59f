"""How calls of operators of packages and of torch's operator registry become calls of rows."""

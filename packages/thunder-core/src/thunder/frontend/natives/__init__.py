"""Native functions: which of them a traced program may call, and with which arguments."""

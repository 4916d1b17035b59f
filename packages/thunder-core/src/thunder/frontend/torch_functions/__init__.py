"""The override protocol of torch's functions, ``__torch_function__``, in a traced program."""

"""The canonical operations, ``def OPERATION(frame, stack, arg)``.

``frame.py`` lists what a handler returns.
"""

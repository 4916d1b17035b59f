"""The canonical operations. ``def OPERATION(frame, stack, arg)``; what a handler returns is told in
``frame.py``.
"""

"""The executors that thunder-core brings. They are built-in plugins: core finds them by hooks and imports
none.
"""

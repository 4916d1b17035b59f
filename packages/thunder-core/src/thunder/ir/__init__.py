"""The intermediate representation: proxies, symbols, traces, their text, and tools to read and edit them."""

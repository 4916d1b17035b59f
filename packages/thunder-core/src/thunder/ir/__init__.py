"""The intermediate representation: proxies, symbols and traces, printed and edited."""

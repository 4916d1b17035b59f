"""Why a compiled program is slow: `thunder.why_slow`."""

"""The parts of the pass that puts writes in place: what is known, chains, places, calls that raise."""

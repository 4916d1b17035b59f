"""A GPT: litgpt's where that package is installed, else a reference model."""

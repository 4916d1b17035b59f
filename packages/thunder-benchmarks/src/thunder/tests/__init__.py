"""Models that thunder's programs and tests share."""

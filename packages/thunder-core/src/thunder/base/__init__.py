"""What every other folder uses: errors, options, dtypes, devices, pytrees, provenance."""

"""The mesh and layout of many devices in which a decoder trains fastest, by estimates."""

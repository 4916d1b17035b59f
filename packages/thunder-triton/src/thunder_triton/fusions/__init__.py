"""Generated fusions: from a region to Triton kernels.

region  →  `nodes`: values and index maps  →  `schedule`: kernels  →  `kernel_text`: Triton source
"""

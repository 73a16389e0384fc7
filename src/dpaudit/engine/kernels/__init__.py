"""CUDA kernels for small convolutions, which only a GPU in TF32 or bfloat16 loads."""

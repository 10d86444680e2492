"""From LLVM text to code in memory: legalization, merging, code generation, the cache and the thread pool."""

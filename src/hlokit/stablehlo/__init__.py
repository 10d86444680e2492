"""StableHLO: text and artifacts in (parser, tree, lowering), text and artifacts out."""

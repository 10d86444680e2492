"""HloModule to StableHLO text: one rule for each HLO op, by opcode, in files with the reader's names."""

"""HLO text: lexer, parser and printer, byte for byte as XLA's."""

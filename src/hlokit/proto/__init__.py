"""HloModuleProto and the messages that hold one, in and out."""
